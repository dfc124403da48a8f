// What comes from outside, read strictly: zlib, JSON.
import Foundation
import zlib

func demand(_ code: String, _ holds: Bool, _ message: @autoclosure () -> String) throws {
    if !holds { throw PtdockError(code: code, message: message()) }
}

func parsedDigest(_ text: String) throws -> String {
    let hex = text.dropFirst(7)
    let plain = hex.utf8.allSatisfy { "0123456789abcdef".utf8.contains($0) }
    try demand("format", text.hasPrefix("sha256:") && hex.utf8.count == 64 && plain, "not a digest")
    return String(hex)
}

/// One zlib stream, whole and nothing behind it; more than `limit` bytes never come out of it.
func inflated(_ packed: Data, limit: Int) throws -> Data {
    var stream = z_stream()
    let started = inflateInit_(&stream, ZLIB_VERSION, Int32(MemoryLayout<z_stream>.size))
    try demand("format", started == Z_OK, "zlib cannot start")
    defer { inflateEnd(&stream) }
    var out = Data()
    var piece = [UInt8](repeating: 0, count: 1 << 16)
    var status = Z_OK
    var input = [UInt8](packed)
    input.withUnsafeMutableBufferPointer { source in
        stream.next_in = source.baseAddress
        stream.avail_in = UInt32(source.count)
        while status == Z_OK && out.count <= limit {
            piece.withUnsafeMutableBufferPointer { target in
                stream.next_out = target.baseAddress
                stream.avail_out = UInt32(target.count)
                status = inflate(&stream, Z_NO_FLUSH)
                out.append(UnsafeBufferPointer(rebasing: target[..<(target.count - Int(stream.avail_out))]))
            }
        }
    }
    let whole = status == Z_STREAM_END && stream.avail_in == 0 && out.count <= limit
    try demand("format", whole, "not one whole zlib stream, or more than \(limit) bytes")
    return out
}

/// A JSON value; whole numbers that fit 64 bits are `.integer`, all others `.number`.
enum Value: Equatable {
    case object([String: Value]), list([Value]), text(String), integer(Int64), number(Double), flag(Bool), null
}

/// A JSON object; each method answers one field, or refuses it.
struct Node {
    let values: [String: Value]

    func has(_ name: String) -> Bool { values[name] != nil }

    func text(_ name: String) throws -> String {
        guard case .text(let text)? = values[name] else { throw refusal(name) }
        return text
    }

    func integer(_ name: String, from low: Int64 = 0) throws -> Int64 {
        guard case .integer(let number)? = values[name], number >= low else { throw refusal(name) }
        return number
    }

    func integerOrNull(_ name: String) throws -> Int64? {
        values[name] == .null ? nil : try integer(name, from: 1)
    }

    func number(_ name: String) throws -> Double {
        switch values[name] {
        case .integer(let number)?: return Double(number)
        case .number(let number)?: return number
        default: throw refusal(name)
        }
    }

    func list(_ name: String) throws -> [Value] {
        guard case .list(let items)? = values[name] else { throw refusal(name) }
        return items
    }

    func texts(_ name: String) throws -> [String] {
        try list(name).map { value in
            guard case .text(let text) = value else { throw refusal(name) }
            return text
        }
    }

    func integers(_ name: String) throws -> [Int64] {
        try list(name).map { value in
            guard case .integer(let number) = value, number >= 0 else { throw refusal(name) }
            return number
        }
    }

    func node(_ name: String) throws -> Node { try Node.of(values[name], refusal(name)) }

    func nodes(_ name: String) throws -> [Node] { try list(name).map { try Node.of($0, refusal(name)) } }

    /// No file is larger than 1 TiB, so sums of sizes stay far from the end of their type.
    func blob() throws -> Blob {
        let size = try integer("size")
        try demand("format", size <= 1 << 40, "a file larger than 1 TiB")
        return Blob(digest: try parsedDigest(text("digest")), size: size)
    }

    func blob(ifAny name: String) throws -> Blob? { has(name) ? try node(name).blob() : nil }

    func name(_ field: String) throws -> String {
        try matching(field, "[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9_-])?")
    }

    func matching(_ name: String, _ pattern: String) throws -> String {
        let text = try text(name)
        let range = text.range(of: "^(?:\(pattern))$", options: .regularExpression)
        guard range == text.startIndex..<text.endIndex else { throw refusal(name) }
        return text
    }

    private static func of(_ value: Value?, _ refusal: PtdockError) throws -> Node {
        guard case .object(let values)? = value else { throw refusal }
        return Node(values: values)
    }

    private func refusal(_ name: String) -> PtdockError {
        PtdockError(code: "format", message: "'\(name)' is missing, or not what it should be")
    }
}

/// Strict JSON: UTF-8 without BOM, and no key twice. (JSONSerialization takes either, and calls true a number.)
struct Json {
    private let bytes: [UInt8]
    private var at = 0

    static func document(_ data: Data) throws -> Node {
        var json = Json(bytes: [UInt8](data))
        let value = try json.value(depth: 0)
        guard case .object(let values) = value, json.peek() == nil else { throw json.failure() }
        return Node(values: values)
    }

    private init(bytes: [UInt8]) { self.bytes = bytes }

    private mutating func value(depth: Int) throws -> Value {
        if depth > 64 { throw failure() }
        switch peek() {
        case UInt8(ascii: "{"): return .object(try members(depth: depth))
        case UInt8(ascii: "["):
            var list: [Value] = []
            try items(until: "]") { json in list.append(try json.value(depth: depth + 1)) }
            return .list(list)
        case UInt8(ascii: "\""): return .text(try string())
        case UInt8(ascii: "t"): return try word("true", .flag(true))
        case UInt8(ascii: "f"): return try word("false", .flag(false))
        case UInt8(ascii: "n"): return try word("null", .null)
        default: return try number()
        }
    }

    private mutating func members(depth: Int) throws -> [String: Value] {
        var found: [String: Value] = [:]
        try items(until: "}") { json in
            guard json.peek() == UInt8(ascii: "\"") else { throw json.failure() }
            let key = try json.string()
            guard found[key] == nil, json.peek() == UInt8(ascii: ":") else { throw json.failure() }
            json.at += 1
            found[key] = try json.value(depth: depth + 1)
        }
        return found
    }

    private mutating func items(until end: Unicode.Scalar, _ item: (inout Json) throws -> Void) throws {
        at += 1
        if peek() == UInt8(ascii: end) {
            at += 1
            return
        }
        while true {
            try item(&self)
            let next = peek()
            at += 1
            if next == UInt8(ascii: end) { return }
            if next != UInt8(ascii: ",") { throw failure() }
        }
    }

    private mutating func string() throws -> String {
        var units: [UInt8] = []
        at += 1
        while at < bytes.count {
            let byte = bytes[at]
            at += 1
            switch byte {
            case UInt8(ascii: "\""):
                guard let text = String(bytes: units, encoding: .utf8) else { throw failure() }
                return text
            case 0..<0x20: throw failure()
            case UInt8(ascii: "\\"): units += try escaped()
            default: units.append(byte)
            }
        }
        throw failure()
    }

    private mutating func escaped() throws -> [UInt8] {
        guard at < bytes.count else { throw failure() }
        let letter = bytes[at]
        at += 1
        if letter == UInt8(ascii: "u") {
            var unit = UInt32(try fourDigits())
            if unit & 0xfc00 == 0xd800, bytes[at...].starts(with: "\\u".utf8) {
                at += 2
                let low = UInt32(try fourDigits())
                guard low & 0xfc00 == 0xdc00 else { throw failure() }
                unit = 0x10000 + (unit & 0x3ff) << 10 + (low & 0x3ff)
            }
            guard let scalar = Unicode.Scalar(unit) else { throw failure() }
            return Array(String(Character(scalar)).utf8)
        }
        let plain = Array("\"\\/bfnrt".utf8), meant: [UInt8] = Array("\"\\/".utf8) + [8, 12, 10, 13, 9]
        guard let index = plain.firstIndex(of: letter) else { throw failure() }
        return [meant[index]]
    }

    private mutating func fourDigits() throws -> UInt16 {
        let digits = String(decoding: bytes[at..<min(at + 4, bytes.count)], as: UTF8.self)
        guard digits.utf8.count == 4, digits.allSatisfy(\.isHexDigit), let unit = UInt16(digits, radix: 16)
        else { throw failure() }
        at += 4
        return unit
    }

    private mutating func number() throws -> Value {
        let text = String(decoding: bytes[at...].prefix { "+-.0123456789eE".utf8.contains($0) }, as: UTF8.self)
        let grammar = "^-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][+-]?[0-9]+)?$"
        guard text.range(of: grammar, options: .regularExpression) != nil else { throw failure() }
        at += text.utf8.count
        if let whole = Int64(text) { return .integer(whole) }
        guard let number = Double(text), number.isFinite else { throw failure() }
        return .number(number)
    }

    private mutating func word(_ word: String, _ value: Value) throws -> Value {
        guard bytes[at...].starts(with: word.utf8) else { throw failure() }
        at += word.utf8.count
        return value
    }

    private mutating func peek() -> UInt8? {
        while at < bytes.count, " \t\n\r".utf8.contains(bytes[at]) { at += 1 }
        return at < bytes.count ? bytes[at] : nil
    }

    private func failure() -> PtdockError { PtdockError(code: "format", message: "not JSON at byte \(at)") }
}

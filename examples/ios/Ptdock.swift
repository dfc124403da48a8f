import Foundation

#if canImport(CryptoKit)
import CryptoKit
#else
import Crypto  // swift-crypto: the same API elsewhere
#endif

/// Why something was refused: `code` is one of docs/devices.md, such as `format`, `integrity`, `digest`, `no-line`.
struct PtdockError: Error {
    let code: String
    let message: String
}

/// A file by the 64 lower-case hex digits of its SHA-256, and its size in bytes.
struct Blob: Hashable {
    let digest: String
    let size: Int64
}

/// A share of devices in basis points; a release of nil means "keep what you have".
struct Arm {
    let release: Int64?
    let shareBp: Int64
    let isOpen: Bool
}

/// A channel's manifest; times are in seconds since 1970.
struct Manifest {
    let registry, channel, salt: String
    let sequence, issued, expires, pollSeconds: Int64
    let arms: [Arm]
    let releases: [Int64: Blob]
    let revoked: Set<String>
}

struct Factors: Hashable {
    let file, template, table: Blob
}

struct Adapter: Hashable {
    let name, version: String
    let program: Blob
    let isOnDemand: Bool
    let selfTest, prompt: Blob?
    let factors: Factors?
}

struct Line {
    let foundation, base: Blob
    let minimum: [Int64]
    let backends, operators: [String]
    let ramBytes: Int64
    let minBuild: [String: Int64]
    let adapters: [Adapter]
    let tokenizer, prompt: Blob?
}

struct Release {
    let number: Int64
    let lines: [Line]
}

/// What the channel last said to this device; `root` grows with an app that is built with new keys.
struct Seen {
    let registry: String
    let root, sequence, issued: Int64
}

/// What the device is, holds and wants; nil is unknown, or all. `executorch` is (major, minor) of the app's build.
struct Device {
    let id: String
    let executorch: (major: Int64, minor: Int64)
    let platform: String
    let appBuild: Int64
    let backends: Set<String>
    var operators: Set<String>?
    var ramBytes, freeDisk: Int64?
    var holds: Set<String> = []
    var wants: Set<String>?
    var onDemand: Set<String> = []
}

/// The line to take (its index), its adapters to install, and the files to fetch, in order.
struct Plan {
    let line: Int
    let adapters: [Adapter]
    let download: [Blob]
}

/// What a device does with ptdock's files, in small; it opens no file and no connection. iOS 14, for PEM keys.
enum Ptdock {
    private static let manifestFields = Set("""
        arms channel critical digest expires holdout issued log_head poll_seconds registry release releases revoked \
        salt schema sequence share_bp size state
        """.split(separator: " ").map(String.init))
    private static let releaseFields = Set("""
        adapters app backends base critical delivery digest encodings executorch file format foundation guaranteed \
        holes lines min min_build name operators prompt ram_bytes release requires schema segments self_test size \
        table template tokenizer type version
        """.split(separator: " ").map(String.init))

    /// Check who signed a manifest: `publicKey` is PEM (`ptdock keys list`), `signature` the bytes of the .sig file.
    static func verify(publicKey: String, manifest: Data, signature: Data) throws {
        guard let key = try? P256.Signing.PublicKey(pemRepresentation: publicKey) else {
            throw PtdockError(code: "format", message: "the key is no P-256 key in PEM")
        }
        let sound = (try? P256.Signing.ECDSASignature(derRepresentation: signature)).map {
            key.isValidSignature($0, for: SHA256.hash(data: manifest))
        }
        try demand("integrity", sound == true, "the manifest's signature does not match this key")
    }

    /// Read a manifest whose signature was verified.
    static func manifest(_ bytes: Data) throws -> Manifest {
        try demand("format", bytes.count <= 4 << 20, "the manifest is larger than 4 MiB")
        let fields = try opened(bytes, known: manifestFields)
        let pins = try fields.nodes("releases").map { (try $0.integer("release", from: 1), try $0.blob()) }
        let releases = Dictionary(pins) { first, _ in first }
        try demand("format", releases.count == pins.count, "a release is pinned twice")
        let arms = try fields.nodes("arms").map { arm in
            Arm(release: try arm.integerOrNull("release"), shareBp: try arm.integer("share_bp", from: 1),
                isOpen: try arm.matching("state", "open|halted") == "open")
        }
        let shares = arms.map(\.shareBp)
        try demand("format", shares.allSatisfy { $0 <= 10000 } && shares.reduce(0, +) == 10000, "bad shares")
        let pinned = arms.compactMap(\.release).allSatisfy { releases[$0] != nil }
        try demand("format", pinned, "an arm without its pin")
        let issued = try fields.integer("issued"), expires = try fields.integer("expires")
        try demand("format", expires > issued, "it expires before it was issued")
        return Manifest(
            registry: try fields.matching("registry", "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
            channel: try fields.name("channel"), salt: try fields.matching("salt", "[0-9a-f]{32}"),
            sequence: try fields.integer("sequence", from: 1), issued: issued, expires: expires,
            pollSeconds: try fields.integer("poll_seconds", from: 1), arms: arms, releases: releases,
            revoked: Set(try fields.texts("revoked").map(parsedDigest)))
    }

    /// Whether a manifest may change anything: throws `expired`, `older` or `another-registry` if not.
    static func checkFresh(_ manifest: Manifest, seen: Seen?, now: Int64, root: Int64 = 0) throws {
        if let seen = seen {
            try demand("another-registry", seen.registry == manifest.registry, "it followed \(seen.registry)")
            let older = (root, manifest.sequence) < (seen.root, seen.sequence)
            try demand("older", !older, "sequence \(seen.sequence) was seen already")
        }
        let clock = max(now, manifest.issued, seen?.issued ?? 0)
        try demand("expired", clock <= manifest.expires, "the manifest expired; what runs stays")
    }

    /// 0 to 9999: where this device stands in the channel's rollouts.
    static func bucket(salt: String, device: String) -> Int64 {
        SHA256.hash(data: Data("\(salt):\(device)".utf8)).prefix(4).reduce(0) { $0 << 8 | Int64($1) } % 10000
    }

    /// The release that a bucket is offered; nil: keep what you have. `active` is the release that runs.
    static func choose(_ arms: [Arm], bucket: Int64, active: Int64?) -> Int64? {
        var end: Int64 = 0
        return arms.first { arm in
            end += arm.shareBp
            return bucket < end && (arm.isOpen || arm.release == active)
        }?.release
    }

    /// Read the release document that the manifest pins, once its digest was compared.
    static func release(_ bytes: Data) throws -> Release {
        let fields = try opened(bytes, known: releaseFields)
        let lines = try fields.nodes("lines").map(line)
        try demand("format", !lines.isEmpty, "the release has no line")
        return Release(number: try fields.integer("release", from: 1), lines: lines)
    }

    /// The first line whose requirements the device meets and whose files it has room for; `no-line`, `no-room`.
    static func plan(_ manifest: Manifest, _ release: Release, _ device: Device) throws -> Plan {
        let met = release.lines.enumerated().filter { meets(device, $0.element) }
        try demand("no-line", !met.isEmpty, "the device meets no line's requirements")
        for (index, line) in met {
            let adapters = line.adapters.filter {
                device.wants?.contains($0.name) ?? true && !manifest.revoked.contains($0.program.digest)
                    && (!$0.isOnDemand || device.onDemand.contains($0.name))
            }
            let written = asFactors(adapters, device)
            var seen = device.holds
            var files: [Blob?] = [line.foundation, line.base, line.tokenizer, line.prompt]
            for adapter in adapters {
                let parts = written.contains(adapter) ? adapter.factors : nil
                files += parts.map { [$0.template, $0.table, $0.file] } ?? [adapter.program]
                files += [adapter.prompt, adapter.selfTest]
            }
            let download = files.compactMap { $0 }.filter { seen.insert($0.digest).inserted }
            let room = download.map(\.size).reduce(0, +) + written.map(\.program.size).reduce(0, +)
            if device.freeDisk.map({ room <= $0 }) ?? true {
                return Plan(line: index, adapters: adapters, download: download)
            }
        }
        throw PtdockError(code: "no-room", message: "the new set does not fit beside what is there")
    }

    /// An adapter's program, written from what travelled as `factors`.
    static func relink(template: Data, table: Data, factors: Data, program: Blob) throws -> Data {
        try demand("format", program.size <= Int32.max, "a program larger than 2 GiB")
        let fields = try Json.document(try inflated(table, limit: 32 << 20))
        let fits = try fields.integer("schema") == 1 && fields.integer("program_size") == program.size
        try demand("format", fits, "a table of another size")
        let slots = try fields.nodes("tensors").map { try Slot($0, limit: program.size) }
        let sites = slots.flatMap { slot in slot.data.map { ($0, slot.size) } + slot.keys.map { ($0, 64) } }
        var end: Int64 = 0
        for (at, size) in sites.sorted(by: { $0.0 < $1.0 }) {
            let inside = at >= end && size <= program.size && at <= program.size - size
            try demand("format", inside, "sites overlap or end late")
            end = at + size
        }
        var out = [UInt8](try inflated(template, limit: Int(program.size)))
        try demand("format", out.count == program.size, "the template is too short")
        var wire = [UInt8](factors)[...]
        for slot in slots {
            try demand("format", slot.wireSize <= wire.count, "the factors end too early")
            let data = slot.folded(wire.prefix(slot.wireSize))
            wire = wire.dropFirst(slot.wireSize)
            let key = Array(hex(SHA256.hash(data: data)).utf8)
            for at in slot.data { out.replaceSubrange(Int(at)..<Int(at) + data.count, with: data) }
            for at in slot.keys { out.replaceSubrange(Int(at)..<Int(at) + key.count, with: key) }
        }
        try demand("format", wire.isEmpty, "more factors than the table describes")
        try demand("digest", hex(SHA256.hash(data: out)) == program.digest, "the program is not the pinned one")
        return Data(out)
    }

    static func hex<Bytes: Sequence>(_ bytes: Bytes) -> String where Bytes.Element == UInt8 {
        bytes.map { String(format: "%02x", $0) }.joined()
    }

    private static func opened(_ bytes: Data, known: Set<String>) throws -> Node {
        let fields = try Json.document(bytes)
        try demand("format", try fields.integer("schema", from: 1) == 1, "the document is for a newer client")
        let unknown = fields.has("critical") ? try fields.texts("critical").filter { !known.contains($0) } : []
        try demand("format", unknown.isEmpty, "the document needs a client that knows \(unknown)")
        return fields
    }

    private static func line(_ fields: Node) throws -> Line {
        let needs = try fields.node("requires")
        let app = needs.has("app") ? try needs.node("app") : Node(values: [:])
        let minimum = try needs.node("executorch").integers("min")
        try demand("format", minimum.count == 2, "requires.executorch.min is not a version")
        let builds = try app.values.keys.map { ($0, try app.node($0).integer("min_build")) }
        return Line(
            foundation: try fields.node("foundation").blob(), base: try fields.node("base").blob(), minimum: minimum,
            backends: try needs.texts("backends"),
            operators: needs.has("operators") ? try needs.texts("operators") : [],
            ramBytes: needs.has("ram_bytes") ? try needs.integer("ram_bytes") : 0,
            minBuild: Dictionary(uniqueKeysWithValues: builds), adapters: try fields.nodes("adapters").map(adapter),
            tokenizer: fields.has("tokenizer") ? try fields.node("tokenizer").node("file").blob() : nil,
            prompt: try fields.blob(ifAny: "prompt"))
    }

    private static func adapter(_ fields: Node) throws -> Adapter {
        let encodings = fields.has("encodings") ? try fields.nodes("encodings") : []
        let factors = try encodings.first { try $0.text("type") == "factors" }.map { each in
            let template = try each.node("template").blob(), table = try each.node("table").blob()
            return Factors(file: try each.blob(), template: template, table: table)
        }
        return Adapter(
            name: try fields.name("name"), version: try fields.text("version"), program: try fields.blob(),
            isOnDemand: fields.has("delivery") ? try fields.text("delivery") == "on-demand" : false,
            selfTest: try fields.blob(ifAny: "self_test"), prompt: try fields.blob(ifAny: "prompt"), factors: factors)
    }

    private static func meets(_ device: Device, _ line: Line) -> Bool {
        device.executorch >= (line.minimum[0], line.minimum[1]) && device.backends.isSuperset(of: line.backends)
            && device.operators?.isSuperset(of: line.operators) ?? true
            && device.ramBytes.map { $0 >= line.ramBytes } ?? true
            && device.appBuild >= line.minBuild[device.platform] ?? 0
    }

    /// The adapters to write from factors: those of a template that weigh no more so, template and table included.
    private static func asFactors(_ adapters: [Adapter], _ device: Device) -> Set<Adapter> {
        func missing(_ blob: Blob) -> Int64 { device.holds.contains(blob.digest) ? 0 : blob.size }
        let absent = adapters.filter { $0.factors != nil && !device.holds.contains($0.program.digest) }
        let groups = Dictionary(grouping: absent) { $0.factors!.template }.values.filter { group in
            let shared = missing(group[0].factors!.template) + missing(group[0].factors!.table)
            return group.map { missing($0.factors!.file) - $0.program.size }.reduce(shared, +) <= 0
        }
        return Set(groups.joined())
    }
}

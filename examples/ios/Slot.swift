/// One factor of a program: what travels, and where it goes.
struct Slot {
    private static let widths = ["F32": 4, "F16": 2, "BF16": 2]

    let data, keys: [Int64]
    let size: Int64
    let wireSize: Int
    private let source, dtype: String
    private let scale: Float

    init(_ fields: Node, limit: Int64) throws {
        dtype = try fields.matching("dtype", "F32|F16")
        source = fields.has("source") ? try fields.matching("source", "F32|F16|BF16") : dtype
        scale = fields.has("scale") ? Float(try fields.number("scale")) : 1
        data = try fields.integers("data")
        keys = try fields.integers("keys")
        size = try fields.integer("size")
        var count: Int64 = 1
        for length in try fields.integers("shape") {
            let (product, overflow) = count.multipliedReportingOverflow(by: length)
            try demand("format", !overflow && product <= limit, "a tensor larger than the program")
            count = product
        }
        try demand("format", size == count * Int64(Slot.widths[dtype]!), "a size that is not the shape's")
        wireSize = Int(count) * Slot.widths[source]!
    }

    func folded(_ wire: ArraySlice<UInt8>) -> [UInt8] {
        let width = Slot.widths[source]!
        var out: [UInt8] = []
        out.reserveCapacity(Int(size))
        for at in stride(from: wire.startIndex, to: wire.endIndex, by: width) {
            let raw = wire[at..<at + width].reversed().reduce(UInt32(0)) { $0 << 8 | UInt32($1) }
            let value = scale * widened(raw)
            var narrow = dtype == "F32" ? value.bitPattern : narrowed(value)
            for _ in 0..<Slot.widths[dtype]! {
                out.append(UInt8(truncatingIfNeeded: narrow))
                narrow >>= 8
            }
        }
        return out
    }

    private func widened(_ raw: UInt32) -> Float {
        if source == "F32" { return Float(bitPattern: raw) }
        if source == "BF16" { return Float(bitPattern: raw << 16) }
        let sign = (raw & 0x8000) << 16, exponent = raw >> 10 & 31, fraction = raw & 1023
        if exponent == 0 { return Float(fraction) * 0x1p-24 * (sign == 0 ? 1 : -1) }
        return Float(bitPattern: sign | (exponent == 31 ? 255 : exponent + 112) << 23 | fraction << 13)
    }

    /// Half to even; a sum with 0.5 rounds where a half's exponent ends. (Float16 is not there on every platform.)
    private func narrowed(_ value: Float) -> UInt32 {
        let sign = value.bitPattern >> 16 & 0x8000, raw = value.bitPattern & 0x7fff_ffff
        if raw > 0x7f80_0000 { return sign | 0x7e00 }
        if raw >= 0x477f_f000 { return sign | 0x7c00 }
        if raw < 0x3880_0000 { return sign | ((Float(bitPattern: raw) + 0.5).bitPattern - Float(0.5).bitPattern) }
        return sign | (raw - 0x3800_0000 + 0xfff + (raw >> 13 & 1)) >> 13
    }
}

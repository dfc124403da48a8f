// Runs the shared vectors (tests/vectors) through the Swift client; ends with 1 when one does not agree.
import Foundation
import zlib

#if canImport(CryptoKit)
import CryptoKit
#else
import Crypto
#endif

@main
struct Vectors {
    var passed = 0
    var failed = 0

    static func main() throws {
        var vectors = Vectors()
        let folder = URL(fileURLWithPath: CommandLine.arguments[1])
        func load(_ name: String) throws -> Node {
            try Json.document(Data(contentsOf: folder.appendingPathComponent("\(name).json")))
        }
        try vectors.buckets(load("bucket"))
        try vectors.documents(load("documents"))
        try vectors.signatures(load("light"))
        try vectors.programs(load("relink"))
        try vectors.plans(load("plan"))
        print("\(vectors.passed) passed, \(vectors.failed) failed")
        exit(vectors.failed > 0 ? 1 : 0)
    }

    mutating func check(_ what: String, _ agrees: Bool) {
        if agrees { passed += 1 } else { failed += 1 }
        if !agrees { FileHandle.standardError.write(Data("differs: \(what)\n".utf8)) }
    }

    mutating func buckets(_ vectors: Node) throws {
        for each in try vectors.nodes("buckets") {
            let bucket = Ptdock.bucket(salt: try each.text("salt"), device: try each.text("device"))
            check("bucket of \(try each.text("device"))", bucket == (try each.integer("bucket")))
        }
        for choice in try vectors.nodes("choices") {
            let arms = try choice.nodes("arms").map { arm in
                Arm(release: try arm.integerOrNull("release"), shareBp: try arm.integer("share_bp"),
                    isOpen: try arm.text("state") == "open")
            }
            for each in try choice.nodes("cases") {
                let active = try each.integerOrNull("active")
                let chosen = Ptdock.choose(arms, bucket: try each.integer("bucket"), active: active)
                check("choice \(each.values)", chosen == (try each.integerOrNull("release")))
            }
        }
    }

    mutating func documents(_ vectors: Node) throws {
        let manifest = Data(try vectors.text("manifest").utf8), release = Data(try vectors.text("release").utf8)
        let pin = Blob(digest: try parsedDigest(vectors.text("release_digest")), size: Int64(release.count))
        check("the release's pin", try Ptdock.manifest(manifest).releases[12] == pin)
        let digest = "sha256:" + Ptdock.hex(SHA256.hash(data: manifest))
        check("the manifest's digest", digest == (try vectors.text("manifest_digest")))
        check("the release", try Ptdock.release(release).number == 12)
        for each in try vectors.nodes("ignored") {
            let read = try Ptdock.manifest(Data(try each.text("manifest").utf8))
            check(try each.text("note"), read.sequence == 42)
        }
        for each in try vectors.nodes("refused") {
            let text = Data(try each.text("manifest").utf8)
            check(try each.text("note"), refusal { _ = try Ptdock.manifest(text) } == "format")
        }
    }

    mutating func signatures(_ vectors: Node) throws {
        let key = try vectors.text("public_key")
        for each in try vectors.nodes("vectors") {
            let text = Data(try each.text("manifest").utf8), signature = try base64(each, "signature")
            let code = refusal { try Ptdock.verify(publicKey: key, manifest: text, signature: signature) }
            check(try each.text("note"), code == (each.values["valid"] == .flag(true) ? nil : "integrity"))
        }
    }

    mutating func programs(_ vectors: Node) throws {
        let good = try vectors.nodes("vectors")
        for each in good {
            let made = try written(each, table: each.text("table"))
            check(try each.text("note"), made == (try base64(each, "program")))
        }
        for each in try vectors.nodes("refused") {
            let table = try each.text("table")
            check(try each.text("note"), refusal { _ = try written(good[0], table: table) } == "format")
        }
    }

    mutating func plans(_ vectors: Node) throws {
        let release = Data(try vectors.text("release").utf8)
        for each in try vectors.nodes("vectors") {
            check(try each.text("note"), try planned(each, release) == (try each.node("plan").values))
        }
    }

    func written(_ vector: Node, table: String) throws -> Data {
        let size = try vector.integer("program_size")
        let program = Blob(digest: try parsedDigest(vector.text("program_digest")), size: size)
        return try Ptdock.relink(
            template: try base64(vector, "template"), table: packed(table), factors: try base64(vector, "factors"),
            program: program)
    }

    func planned(_ vector: Node, _ release: Data) throws -> [String: Value] {
        do {
            let manifest = try Ptdock.manifest(Data(try vector.text("manifest").utf8))
            let state = try vector.node("device"), channels = try state.node("channels")
            let seen = channels.has(manifest.channel) ? try channels.node(manifest.channel) : nil
            try Ptdock.checkFresh(manifest, seen: try seen.map(seenState), now: try vector.integer("now"))
            let asks = try device(state)
            let bucket = Ptdock.bucket(salt: manifest.salt, device: asks.id)
            guard let chosen = Ptdock.choose(manifest.arms, bucket: bucket, active: nil) else { return ["release": .null] }
            let plan = try Ptdock.plan(manifest, try Ptdock.release(release), asks)
            return [
                "release": .integer(chosen), "line": .integer(Int64(plan.line)),
                "adapters": .list(plan.adapters.map { .text($0.name) }),
                "download": .list(plan.download.map { .text("sha256:" + $0.digest) }),
            ]
        } catch let error as PtdockError {
            return ["code": .text(error.code)]
        }
    }

    func seenState(_ state: Node) throws -> Seen {
        Seen(registry: try state.text("registry"), root: try state.integer("root"),
             sequence: try state.integer("sequence"), issued: try state.integer("issued"))
    }

    func device(_ state: Node) throws -> Device {
        let version = try state.text("executorch").split(separator: ".").compactMap { Int64($0) }
        let app = try state.node("app")
        return Device(
            id: try state.text("id"), executorch: (version[0], version[1]), platform: try app.text("platform"),
            appBuild: try app.integer("build"), backends: Set(try state.texts("backends")),
            operators: state.has("operators") ? Set(try state.texts("operators")) : nil,
            ramBytes: state.has("ram_bytes") ? try state.integer("ram_bytes") : nil,
            freeDisk: state.has("free_disk") ? try state.integer("free_disk") : nil,
            holds: Set(try state.nodes("holds").map { try $0.blob().digest }),
            wants: state.has("wants") ? Set(try state.texts("wants")) : nil,
            onDemand: Set(try state.texts("on_demand")))
    }

    func base64(_ vector: Node, _ name: String) throws -> Data {
        Data(base64Encoded: try vector.text(name)) ?? Data()
    }

    func refusal(_ act: () throws -> Void) -> String? {
        do {
            try act()
            return nil
        } catch {
            return (error as? PtdockError)?.code ?? "another error"
        }
    }

    func packed(_ text: String) -> Data {
        var source = [UInt8](text.utf8)
        var size = compressBound(UInt(source.count))
        var target = [UInt8](repeating: 0, count: Int(size))
        compress(&target, &size, &source, UInt(source.count))
        return Data(target.prefix(Int(size)))
    }
}

package ptdock

import java.math.BigInteger
import java.nio.ByteBuffer
import java.nio.ByteOrder
import java.security.GeneralSecurityException
import java.security.KeyFactory
import java.security.MessageDigest
import java.security.Signature
import java.security.interfaces.ECPublicKey
import java.security.spec.X509EncodedKeySpec
import java.util.Base64

/** Why something was refused: `code` is one of docs/devices.md, such as `format`, `integrity`, `digest`, `no-line`. */
class PtdockException(val code: String, message: String) : Exception(message)

/** A file by the 64 lower-case hex digits of its SHA-256, and its size in bytes. */
data class Blob(val digest: String, val size: Long)

/** A share of devices in basis points; a release of null means "keep what you have". */
data class Arm(val release: Long?, val shareBp: Long, val open: Boolean)

/** A channel's manifest; times are in seconds since 1970. */
class Manifest(
    val registry: String, val channel: String, val sequence: Long, val issued: Long, val expires: Long,
    val pollSeconds: Long, val salt: String, val arms: List<Arm>, val releases: Map<Long, Blob>,
    val revoked: Set<String>
)

data class Factors(val file: Blob, val template: Blob, val table: Blob)

data class Adapter(
    val name: String, val version: String, val program: Blob, val onDemand: Boolean, val selfTest: Blob?,
    val prompt: Blob?, val factors: Factors?
)

class Line(
    val foundation: Blob, val base: Blob, val minimum: List<Long>, val backends: List<String>,
    val operators: List<String>, val ramBytes: Long, val minBuild: Map<String, Long>, val adapters: List<Adapter>,
    val tokenizer: Blob?, val prompt: Blob?
)

class Release(val number: Long, val lines: List<Line>)

/** What the channel last said to this device; `root` grows with an app that is built with new keys. */
data class Seen(val registry: String, val root: Long, val sequence: Long, val issued: Long)

/** What the device is, holds and wants; null is unknown, or all. `executorch` is (major, minor) of the app's build. */
data class Device(
    val id: String, val executorch: List<Long>, val platform: String, val appBuild: Long, val backends: Set<String>,
    val operators: Set<String>? = null, val ramBytes: Long? = null, val freeDisk: Long? = null,
    val holds: Set<String> = emptySet(), val wants: Set<String>? = null, val onDemand: Set<String> = emptySet()
)

/** The line to take (its index), its adapters to install, and the files to fetch, in order. */
class Plan(val line: Int, val adapters: List<Adapter>, val download: List<Blob>)

/** What a device does with ptdock's files, in small; it opens no file and no connection. Android 8 (API 26). */
object Ptdock {
    private const val MAX_MANIFEST = 4 shl 20
    private const val MAX_TABLE = 32L shl 20
    private val P256_ORDER = BigInteger("ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551", 16)
    private val MANIFEST_FIELDS = ("arms channel critical digest expires holdout issued log_head poll_seconds" +
        " registry release releases revoked salt schema sequence share_bp size state").split(" ")
    private val RELEASE_FIELDS = ("adapters app backends base critical delivery digest encodings executorch file" +
        " format foundation guaranteed holes lines min min_build name operators prompt ram_bytes release requires" +
        " schema segments self_test size table template tokenizer type version").split(" ")
    private val WIDTHS = mapOf("F32" to 4, "F16" to 2, "BF16" to 2)

    /** Check who signed a manifest: `publicKey` is PEM (`ptdock keys list`), `signature` the bytes of the .sig file. */
    fun verify(publicKey: String, manifest: ByteArray, signature: ByteArray) {
        val text = publicKey.lines().filterNot { it.startsWith("-----") }.joinToString("")
        val der = Base64.getMimeDecoder().decode(text)
        val key = KeyFactory.getInstance("EC").generatePublic(X509EncodedKeySpec(der)) as ECPublicKey
        demand("format", key.params.order == P256_ORDER) { "the key is not on P-256" }
        val valid = try {
            Signature.getInstance("SHA256withECDSA").run { initVerify(key); update(manifest); verify(signature) }
        } catch (error: GeneralSecurityException) {
            false // the signature is not even DER
        }
        demand("integrity", valid) { "the manifest's signature does not match this key" }
    }

    /** Read a manifest whose signature was verified. */
    fun manifest(bytes: ByteArray): Manifest {
        demand("format", bytes.size <= MAX_MANIFEST) { "the manifest is larger than 4 MiB" }
        val fields = opened(bytes, MANIFEST_FIELDS)
        val releases = fields.nodes("releases").associate { it.long("release", 1) to it.blob() }
        demand("format", releases.size == fields.list("releases").size) { "a release is pinned twice" }
        val arms = fields.nodes("arms").map { arm ->
            Arm(arm.longOrNull("release"), arm.long("share_bp", 1), arm.matching("state", "open|halted") == "open")
        }
        demand("format", arms.all { it.shareBp <= 10000 } && arms.sumLong { it.shareBp } == 10000L) { "bad shares" }
        demand("format", arms.all { it.release == null || it.release in releases }) { "an arm without its pin" }
        demand("format", fields.long("expires") > fields.long("issued")) { "it expires before it was issued" }
        return Manifest(
            fields.matching("registry", "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), fields.name("channel"),
            fields.long("sequence", 1), fields.long("issued"), fields.long("expires"), fields.long("poll_seconds", 1),
            fields.matching("salt", "[0-9a-f]{32}"), arms, releases, fields.texts("revoked").map(::digest).toSet()
        )
    }

    /** Whether a manifest may change anything: `expired`, `older` or `another-registry` if not. */
    fun checkFresh(manifest: Manifest, seen: Seen?, now: Long, root: Long = 0) {
        if (seen != null) {
            demand("another-registry", seen.registry == manifest.registry) { "the channel followed ${seen.registry}" }
            val older = root < seen.root || (root == seen.root && manifest.sequence < seen.sequence)
            demand("older", !older) { "sequence ${seen.sequence} was seen already" }
        }
        val clock = maxOf(now, manifest.issued, seen?.issued ?: 0)
        demand("expired", clock <= manifest.expires) { "the manifest expired; what runs stays" }
    }

    /** 0 to 9999: where this device stands in the channel's rollouts. */
    fun bucket(salt: String, device: String): Long =
        ByteBuffer.wrap(sha256("$salt:$device".toByteArray())).int.toLong().and(0xffffffffL) % 10000

    /** The release that a bucket is offered; null: keep what you have. `active` is the release that runs. */
    fun choose(arms: List<Arm>, bucket: Long, active: Long?): Long? {
        var end = 0L
        return arms.firstOrNull { arm ->
            end += arm.shareBp
            bucket < end && (arm.open || arm.release == active)
        }?.release
    }

    /** Read the release document that the manifest pins, once its digest was compared. */
    fun release(bytes: ByteArray): Release {
        val fields = opened(bytes, RELEASE_FIELDS)
        val lines = fields.nodes("lines").map(::line)
        demand("format", lines.isNotEmpty()) { "the release has no line" }
        return Release(fields.long("release", 1), lines)
    }

    /** The first line whose requirements the device meets and whose files it has room for; `no-line`, `no-room`. */
    fun plan(manifest: Manifest, release: Release, device: Device): Plan {
        val met = release.lines.filter { meets(device, it) }
        demand("no-line", met.isNotEmpty()) { "the device meets no line's requirements" }
        for (line in met) {
            val adapters = line.adapters.filter { adapter ->
                (device.wants == null || adapter.name in device.wants) && adapter.program.digest !in manifest.revoked &&
                    (!adapter.onDemand || adapter.name in device.onDemand)
            }
            val written = asFactors(adapters, device)
            val files = listOf(line.foundation, line.base, line.tokenizer, line.prompt) + adapters.flatMap { adapter ->
                val parts = adapter.factors.takeIf { adapter in written }
                val form = parts?.run { listOf(template, table, file) } ?: listOf(adapter.program)
                form + listOf(adapter.prompt, adapter.selfTest)
            }
            val download = files.filterNotNull().filter { it.digest !in device.holds }.distinct()
            val room = download.sumLong { it.size } + written.sumLong { it.program.size }
            if (device.freeDisk == null || room <= device.freeDisk) {
                return Plan(release.lines.indexOf(line), adapters, download)
            }
        }
        throw PtdockException("no-room", "the new set does not fit beside what is there")
    }

    /** An adapter's program, written from what travelled as `factors`. */
    fun relink(template: ByteArray, table: ByteArray, factors: ByteArray, program: Blob): ByteArray {
        demand("format", program.size <= Int.MAX_VALUE) { "a program larger than 2 GiB" }
        val fields = Node(Json(utf8(inflated(table, MAX_TABLE))).document())
        demand("format", fields.long("schema") == 1L && fields.long("program_size") == program.size) { "another size" }
        val slots = fields.nodes("tensors").map { Slot(it, program.size) }
        val sites = slots.flatMap { slot -> slot.data.map { it to slot.size } + slot.keys.map { it to 64L } }
        sites.sortedBy { it.first }.fold(0L) { end, (at, size) ->
            demand("format", at >= end && at + size in at..program.size) { "sites overlap or end late" }
            at + size
        }
        val out = inflated(template, program.size)
        demand("format", out.size.toLong() == program.size) { "the template is too short" }
        val wire = ByteBuffer.wrap(factors).order(ByteOrder.LITTLE_ENDIAN)
        for (slot in slots) {
            demand("format", slot.count * slot.width <= wire.remaining()) { "the factors end too early" }
            val data = slot.folded(wire)
            val key = hex(sha256(data)).toByteArray()
            slot.data.forEach { data.copyInto(out, it.toInt()) }
            slot.keys.forEach { key.copyInto(out, it.toInt()) }
        }
        demand("format", !wire.hasRemaining()) { "more factors than the table describes" }
        demand("digest", hex(sha256(out)) == program.digest) { "the program is not the pinned one" }
        return out
    }

    private class Slot(fields: Node, limit: Long) {
        val dtype = fields.matching("dtype", "F32|F16")
        val source = if ("source" in fields) fields.matching("source", "F32|F16|BF16") else dtype
        val scale = (if ("scale" in fields) fields.number("scale") else 1.0).toFloat()
        val data = fields.longs("data")
        val keys = fields.longs("keys")
        val size = fields.long("size")
        val width = WIDTHS.getValue(source).toLong()
        val count = fields.longs("shape").fold(1L) { product, length ->
            demand("format", length <= limit && product * length <= limit) { "a tensor larger than the program" }
            product * length
        }

        init {
            demand("format", size == count * WIDTHS.getValue(dtype)) { "a size that is not the shape's" }
        }

        fun folded(wire: ByteBuffer): ByteArray {
            val out = ByteBuffer.allocate(size.toInt()).order(ByteOrder.LITTLE_ENDIAN)
            for (index in 0 until count) {
                val value = scale * when (source) {
                    "F32" -> wire.float
                    "BF16" -> floatOf(wire.short.toInt() shl 16)
                    else -> halfToFloat(wire.short.toInt() and 0xffff)
                }
                if (dtype == "F32") out.putFloat(value) else out.putShort(floatToHalf(value).toShort())
            }
            return out.array()
        }
    }

    private fun floatOf(bits: Int) = java.lang.Float.intBitsToFloat(bits)

    private fun halfToFloat(half: Int): Float {
        val sign = half and 0x8000 shl 16
        val exponent = half shr 10 and 31
        val fraction = half and 1023
        val small = fraction * 5.9604645e-8f // 2^-24
        if (exponent == 0) return if (sign == 0) small else -small
        val wide = if (exponent == 31) 255 else exponent + 112
        return floatOf(sign or (wide shl 23) or (fraction shl 13))
    }

    /** Half to even; a sum with 0.5 rounds where a half's exponent ends. */
    private fun floatToHalf(value: Float): Int {
        val sign = value.toRawBits() ushr 16 and 0x8000
        val raw = value.toRawBits() and 0x7fffffff
        return sign or when {
            raw > 0x7f800000 -> 0x7e00
            raw >= 0x477ff000 -> 0x7c00
            raw < 0x38800000 -> (floatOf(raw) + 0.5f).toRawBits() - 0.5f.toRawBits()
            else -> raw - 0x38000000 + 0xfff + (raw shr 13 and 1) shr 13
        }
    }

    private inline fun <T> Iterable<T>.sumLong(value: (T) -> Long): Long = fold(0L) { sum, each -> sum + value(each) }

    private fun opened(bytes: ByteArray, known: List<String>): Node {
        val fields = Node(Json(utf8(bytes)).document())
        demand("format", fields.long("schema", 1) == 1L) { "the document is for a newer client" }
        val unknown = if ("critical" in fields) fields.texts("critical") - known else emptyList()
        demand("format", unknown.isEmpty()) { "the document needs a client that knows $unknown" }
        return fields
    }

    private fun line(fields: Node): Line {
        val needs = fields.node("requires")
        val app = if ("app" in needs) needs.node("app") else Node(emptyMap())
        val minimum = needs.node("executorch").longs("min")
        demand("format", minimum.size == 2) { "requires.executorch.min is not a version" }
        return Line(
            fields.node("foundation").blob(), fields.node("base").blob(), minimum, needs.texts("backends"),
            if ("operators" in needs) needs.texts("operators") else emptyList(),
            if ("ram_bytes" in needs) needs.long("ram_bytes") else 0,
            app.names.associateWith { app.node(it).long("min_build") }, fields.nodes("adapters").map(::adapter),
            if ("tokenizer" in fields) fields.node("tokenizer").node("file").blob() else null,
            fields.blobOrNull("prompt")
        )
    }

    private fun adapter(fields: Node): Adapter {
        val encodings = if ("encodings" in fields) fields.nodes("encodings") else emptyList()
        val factors = encodings.firstOrNull { it.text("type") == "factors" }
        return Adapter(
            fields.name("name"), fields.text("version"), fields.blob(),
            "delivery" in fields && fields.text("delivery") == "on-demand", fields.blobOrNull("self_test"),
            fields.blobOrNull("prompt"), factors?.run { Factors(blob(), node("template").blob(), node("table").blob()) }
        )
    }

    private fun meets(device: Device, line: Line): Boolean {
        val (major, minor) = device.executorch
        val recent = major > line.minimum[0] || (major == line.minimum[0] && minor >= line.minimum[1])
        return recent && device.backends.containsAll(line.backends) &&
            (device.operators == null || device.operators.containsAll(line.operators)) &&
            (device.ramBytes == null || device.ramBytes >= line.ramBytes) &&
            device.appBuild >= line.minBuild[device.platform] ?: 0L
    }

    /** The adapters to write from factors: those of a template that weigh no more so, template and table included. */
    private fun asFactors(adapters: List<Adapter>, device: Device): Set<Adapter> {
        fun missing(blob: Blob) = if (blob.digest in device.holds) 0 else blob.size
        val absent = adapters.filter { it.factors != null && it.program.digest !in device.holds }
        return absent.groupBy { it.factors!!.template }.values.filter { group ->
            val shared = group.first().factors!!.let { missing(it.template) + missing(it.table) }
            shared + group.sumLong { missing(it.factors!!.file) - it.program.size } <= 0
        }.flatten().toSet()
    }

    internal fun sha256(bytes: ByteArray): ByteArray = MessageDigest.getInstance("SHA-256").digest(bytes)

    internal fun hex(bytes: ByteArray): String = bytes.joinToString("") { "%02x".format(it) }
}

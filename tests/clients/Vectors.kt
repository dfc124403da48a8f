// Runs the shared vectors (tests/vectors) through the Kotlin client; ends with 1 when one does not agree.
@file:JvmName("Vectors")

package ptdock

import java.io.ByteArrayOutputStream
import java.io.File
import java.util.Base64
import java.util.zip.DeflaterOutputStream
import kotlin.system.exitProcess

private var passed = 0
private var failed = 0

private typealias Fields = Map<String, Any?>

@Suppress("UNCHECKED_CAST")
private fun Any?.fields() = this as Fields

private fun Any?.all() = (this as List<*>).map { it.fields() }
private fun Any?.text() = this as String
private fun Any?.long() = this as Long
private fun Any?.texts() = (this as List<*>).map { it as String }.toSet()
private fun Any?.base64() = Base64.getDecoder().decode(this as String)

private fun check(what: Any?, agrees: Boolean) {
    if (agrees) passed++ else failed++
    if (!agrees) System.err.println("differs: $what")
}

private fun refusal(act: () -> Unit): String? = try {
    act()
    null
} catch (error: PtdockException) {
    error.code
}

private fun packed(text: String) =
    ByteArrayOutputStream().also { out -> DeflaterOutputStream(out).use { it.write(text.toByteArray()) } }.toByteArray()

private fun buckets(vectors: Fields) {
    for (each in vectors["buckets"].all()) {
        check(each, Ptdock.bucket(each["salt"].text(), each["device"].text()) == each["bucket"])
    }
    for (choice in vectors["choices"].all()) {
        val arms = choice["arms"].all().map { Arm(it["release"] as Long?, it["share_bp"].long(), it["state"] == "open") }
        for (each in choice["cases"].all()) {
            check(each, Ptdock.choose(arms, each["bucket"].long(), each["active"] as Long?) == each["release"])
        }
    }
}

private fun documents(vectors: Fields) {
    val manifest = vectors["manifest"].text().toByteArray()
    val release = vectors["release"].text().toByteArray()
    val pin = Ptdock.manifest(manifest).releases[12L]
    check("the manifest's digest", "sha256:" + Ptdock.hex(Ptdock.sha256(manifest)) == vectors["manifest_digest"])
    check("the release's pin", pin == Blob(digest(vectors["release_digest"].text()), release.size.toLong()))
    check("the release", Ptdock.release(release).number == 12L)
    for (each in vectors["ignored"].all()) {
        check(each["note"], Ptdock.manifest(each["manifest"].text().toByteArray()).sequence == 42L)
    }
    for (each in vectors["refused"].all()) {
        check(each["note"], refusal { Ptdock.manifest(each["manifest"].text().toByteArray()) } == "format")
    }
}

private fun signatures(vectors: Fields) {
    for (each in vectors["vectors"].all()) {
        val manifest = each["manifest"].text().toByteArray()
        val code = refusal { Ptdock.verify(vectors["public_key"].text(), manifest, each["signature"].base64()) }
        check(each["note"], code == if (each["valid"] == true) null else "integrity")
    }
}

private fun programs(vectors: Fields) {
    for (each in vectors["vectors"].all()) {
        val program = Blob(digest(each["program_digest"].text()), each["program_size"].long())
        val made = Ptdock.relink(
            each["template"].base64(), packed(each["table"].text()), each["factors"].base64(), program
        )
        check(each["note"], made.contentEquals(each["program"].base64()))
    }
    val good = vectors["vectors"].all().first()
    val program = Blob(digest(good["program_digest"].text()), good["program_size"].long())
    for (each in vectors["refused"].all()) {
        val code = refusal {
            Ptdock.relink(good["template"].base64(), packed(each["table"].text()), good["factors"].base64(), program)
        }
        check(each["note"], code == "format")
    }
}

private fun device(state: Fields): Device {
    val app = state["app"].fields()
    return Device(
        id = state["id"].text(), executorch = state["executorch"].text().split(".").take(2).map { it.toLong() },
        platform = app["platform"].text(), appBuild = app["build"].long(), backends = state["backends"].texts(),
        operators = state["operators"]?.texts(), ramBytes = state["ram_bytes"] as Long?,
        freeDisk = state["free_disk"] as Long?, holds = state["holds"].all().map { digest(it["digest"].text()) }.toSet(),
        wants = state["wants"]?.texts(), onDemand = state["on_demand"].texts()
    )
}

private fun planned(vector: Fields, release: ByteArray): Fields = try {
    val manifest = Ptdock.manifest(vector["manifest"].text().toByteArray())
    val state = vector["device"].fields()
    val seen = state["channels"].fields()[manifest.channel]?.fields()?.run {
        Seen(get("registry").text(), get("root").long(), get("sequence").long(), get("issued").long())
    }
    Ptdock.checkFresh(manifest, seen, vector["now"].long())
    val asks = device(state)
    val chosen = Ptdock.choose(manifest.arms, Ptdock.bucket(manifest.salt, asks.id), null)
    if (chosen == null) mapOf("release" to null) else Ptdock.plan(manifest, Ptdock.release(release), asks).run {
        mapOf(
            "release" to chosen, "line" to line.toLong(), "adapters" to adapters.map { it.name },
            "download" to download.map { "sha256:" + it.digest }
        )
    }
} catch (error: PtdockException) {
    mapOf("code" to error.code)
}

private fun plans(vectors: Fields) {
    val release = vectors["release"].text().toByteArray()
    for (each in vectors["vectors"].all()) check(each["note"], planned(each, release) == each["plan"])
}

fun main(arguments: Array<String>) {
    fun load(name: String) = Json(File(arguments[0], "$name.json").readText()).document()
    buckets(load("bucket"))
    documents(load("documents"))
    signatures(load("light"))
    programs(load("relink"))
    plans(load("plan"))
    println("$passed passed, $failed failed")
    exitProcess(if (failed > 0) 1 else 0)
}

// What comes from outside, read strictly: UTF-8, zlib, JSON.
package ptdock

import java.io.ByteArrayOutputStream
import java.nio.ByteBuffer
import java.nio.charset.CharacterCodingException
import java.util.zip.DataFormatException
import java.util.zip.Inflater

internal fun utf8(bytes: ByteArray): String = try {
    Charsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(bytes)).toString()
} catch (error: CharacterCodingException) {
    throw PtdockException("format", "the document is not UTF-8")
}

internal fun digest(text: String): String {
    demand("format", Regex("sha256:[0-9a-f]{64}").matches(text)) { "not a digest" }
    return text.substring(7)
}

/** One zlib stream, whole and nothing behind it; more than `limit` bytes never come out of it. */
internal fun inflated(packed: ByteArray, limit: Long): ByteArray {
    val inflater = Inflater().apply { setInput(packed) }
    val out = ByteArrayOutputStream()
    val piece = ByteArray(1 shl 16)
    try {
        while (!inflater.finished() && out.size() <= limit) {
            val count = inflater.inflate(piece)
            demand("format", count > 0 || inflater.finished()) { "the zlib stream is cut" }
            out.write(piece, 0, count)
        }
        demand("format", out.size() <= limit && inflater.remaining == 0) { "more than one stream of $limit bytes" }
    } catch (error: DataFormatException) {
        throw PtdockException("format", "not a zlib stream: ${error.message}")
    } finally {
        inflater.end()
    }
    return out.toByteArray()
}

internal inline fun demand(code: String, holds: Boolean, message: () -> String) {
    if (!holds) throw PtdockException(code, message())
}

/** A JSON object; each method answers one field, or refuses it. */
internal class Node(private val values: Map<String, Any?>) {
    val names get() = values.keys

    operator fun contains(name: String) = name in values
    fun text(name: String) = values[name] as? String ?: refuse(name)
    fun long(name: String, low: Long = 0) = (values[name] as? Long)?.takeIf { it >= low } ?: refuse(name)
    fun longOrNull(name: String) = if (name in values && values[name] == null) null else long(name, 1)
    fun number(name: String) = (values[name] as? Number ?: refuse(name)).toDouble()
    fun list(name: String) = values[name] as? List<*> ?: refuse(name)
    fun texts(name: String) = list(name).map { it as? String ?: refuse(name) }
    fun longs(name: String) = list(name).map { (it as? Long)?.takeIf { number -> number >= 0 } ?: refuse(name) }
    fun node(name: String) = of(values[name], name)
    fun nodes(name: String) = list(name).map { of(it, name) }

    /** No file is larger than 1 TiB, so sums of sizes stay far from the end of their type. */
    fun blob() = Blob(digest(text("digest")), long("size").takeIf { it <= 1L shl 40 } ?: refuse("size"))
    fun blobOrNull(name: String) = if (name in values) node(name).blob() else null
    fun name(name: String) = matching(name, "[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9_-])?")
    fun matching(name: String, pattern: String) = text(name).takeIf { Regex(pattern).matches(it) } ?: refuse(name)

    @Suppress("UNCHECKED_CAST")
    private fun of(value: Any?, name: String) = Node(value as? Map<String, Any?> ?: refuse(name))

    private fun refuse(name: String): Nothing =
        throw PtdockException("format", "'$name' is missing, or not what it should be")
}

/** Strict JSON: no key twice, whole numbers as Long where they fit, all others as Double. (org.json takes anything.) */
internal class Json(private val text: String) {
    private var at = 0

    fun document(): Map<String, Any?> {
        val value = value(0)
        @Suppress("UNCHECKED_CAST")
        return if (peek() == '\u0000' && at == text.length) value as? Map<String, Any?> ?: fail() else fail()
    }

    private fun value(depth: Int): Any? = when (if (depth > 64) fail() else peek()) {
        '{' -> members(depth)
        '[' -> mutableListOf<Any?>().also { list -> items(']') { list += value(depth + 1) } }
        '"' -> string()
        't' -> word("true", true)
        'f' -> word("false", false)
        'n' -> word("null", null)
        else -> number()
    }

    private fun members(depth: Int) = linkedMapOf<String, Any?>().also { map ->
        items('}') {
            val key = if (peek() == '"') string() else fail()
            if (key in map || peek() != ':') fail()
            at++
            map[key] = value(depth + 1)
        }
    }

    private inline fun items(end: Char, item: () -> Unit) {
        at++
        if (peek() == end) {
            at++
            return
        }
        while (true) {
            item()
            val next = peek()
            at++
            if (next == end) return
            if (next != ',') fail()
        }
    }

    private fun string(): String {
        val out = StringBuilder()
        at++
        while (true) {
            val char = text.getOrElse(at++) { fail() }
            when {
                char == '"' -> return out.toString().also { if (!isPaired(it)) fail() }
                char < ' ' -> fail()
                char == '\\' -> out.append(escaped())
                else -> out.append(char)
            }
        }
    }

    private fun escaped(): Char {
        val char = text.getOrElse(at++) { fail() }
        if (char == 'u') {
            val digits = text.substring(at, minOf(at + 4, text.length))
            at += 4
            return if (Regex("[0-9a-fA-F]{4}").matches(digits)) digits.toInt(16).toChar() else fail()
        }
        val index = "\"\\/bfnrt".indexOf(char)
        return if (index < 0) fail() else "\"\\/\b\u000c\n\r\t"[index]
    }

    private fun isPaired(text: String) = Charsets.UTF_8.newEncoder().canEncode(text)

    private fun number(): Any {
        val match = NUMBER.find(text, at)?.takeIf { it.range.first == at } ?: fail()
        at += match.value.length
        return match.value.toLongOrNull() ?: match.value.toDouble().takeIf { it.isFinite() } ?: fail()
    }

    private fun word(word: String, value: Any?): Any? {
        if (!text.startsWith(word, at)) fail()
        at += word.length
        return value
    }

    private fun peek(): Char {
        while (at < text.length && text[at] in " \t\n\r") at++
        return text.getOrElse(at) { '\u0000' }
    }

    private fun fail(): Nothing = throw PtdockException("format", "not JSON at character $at")

    private companion object {
        val NUMBER = Regex("-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][+-]?[0-9]+)?")
    }
}

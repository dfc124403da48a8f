// Digests, the signature, and an adapter's program from template, table and factors.
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "json.hpp"
#include "ptdock.hpp"

namespace ptdock {
namespace {

constexpr std::size_t kMaxTable = 32u << 20;
constexpr std::int64_t kMaxProgram = 2147483647;
constexpr std::int64_t kKey = 64;

// One zlib stream, whole and nothing behind it; more than `limit` bytes never come out of it.
std::string inflated(std::string_view packed, std::size_t limit) {
  z_stream stream{};
  if (inflateInit(&stream) != Z_OK) throw Error("format", "zlib cannot start");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> end(&stream, inflateEnd);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  std::string out;
  int status = Z_OK;
  while (status == Z_OK && out.size() <= limit) {
    const std::size_t had = out.size();
    out.resize(std::min(limit + 1, std::max<std::size_t>(64 << 10, 2 * had)));
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + had);
    stream.avail_out = static_cast<uInt>(out.size() - had);
    status = inflate(&stream, Z_NO_FLUSH);
    out.resize(out.size() - stream.avail_out);
  }
  if (status != Z_STREAM_END || stream.avail_in > 0 || out.size() > limit) {
    throw Error("format", "not one whole zlib stream, or too large");
  }
  return out;
}

std::uint32_t bits(float value) {
  std::uint32_t raw;
  std::memcpy(&raw, &value, sizeof raw);
  return raw;
}

float from_bits(std::uint32_t raw) {
  float value;
  std::memcpy(&value, &raw, sizeof value);
  return value;
}

std::uint32_t little(const char* at, int width) {
  std::uint32_t raw = 0;
  for (int i = 0; i < width; ++i) raw |= static_cast<std::uint32_t>(static_cast<unsigned char>(at[i])) << (8 * i);
  return raw;
}

float widened_half(std::uint32_t half) {
  const std::uint32_t sign = (half & 0x8000) << 16, exponent = half >> 10 & 31, fraction = half & 1023;
  if (exponent == 31) return from_bits(sign | 0x7f800000 | fraction << 13);
  if (exponent > 0) return from_bits(sign | (exponent + 112) << 23 | fraction << 13);
  const float small = static_cast<float>(fraction) * 0x1p-24f;
  return sign ? -small : small;
}

// Half to even; a sum with 0.5 lets the processor round where a half's exponent ends.
std::uint32_t narrowed_half(float value) {
  const std::uint32_t sign = bits(value) >> 16 & 0x8000;
  std::uint32_t raw = bits(value) & 0x7fffffff;
  if (raw > 0x7f800000) return sign | 0x7e00;
  if (raw >= 0x477ff000) return sign | 0x7c00;
  if (raw < 0x38800000) return sign | (bits(from_bits(raw) + 0.5f) - bits(0.5f));
  raw += 0xc8000fff + (raw >> 13 & 1);
  return sign | raw >> 13;
}

int width_of(const std::string& dtype) { return dtype == "F32" ? 4 : dtype == "F16" || dtype == "BF16" ? 2 : 0; }

float widened(const std::string& source, const char* at) {
  if (source == "F32") return from_bits(little(at, 4));
  return source == "BF16" ? from_bits(little(at, 2) << 16) : widened_half(little(at, 2));
}

std::string folded(std::string_view wire, const std::string& source, const std::string& dtype, float scale) {
  const int from = width_of(source), to = width_of(dtype);
  std::string out;
  out.reserve(wire.size() / from * to);
  for (std::size_t at = 0; at < wire.size(); at += from) {
    const float value = widened(source, wire.data() + at) * scale;
    const std::uint32_t raw = dtype == "F32" ? bits(value) : narrowed_half(value);
    for (int i = 0; i < to; ++i) out.push_back(static_cast<char>(raw >> (8 * i)));
  }
  return out;
}

struct Slot {
  std::string source, dtype;
  std::int64_t count = 1, size = 0;
  float scale = 1;
  std::vector<std::int64_t> data, keys;
};

std::vector<std::int64_t> counts(const Json& object, const char* name) {
  std::vector<std::int64_t> found;
  for (const Json& value : list(object, name)) found.push_back(integer(value, name));
  return found;
}

Slot slot(const Json& object, std::int64_t program_size) {
  Slot made;
  made.dtype = text(object, "dtype");
  made.source = object.contains("source") ? text(object, "source") : made.dtype;
  if (width_of(made.source) == 0 || made.dtype == "BF16" || width_of(made.dtype) == 0) throw format("source");
  for (const std::int64_t length : counts(object, "shape")) {
    if (length > program_size || (length > 0 && made.count > program_size / length)) throw format("shape");
    made.count *= length;
  }
  made.size = integer(object, "size");
  if (made.size != made.count * width_of(made.dtype)) throw format("size");
  if (object.contains("scale")) {
    if (!object.at("scale").is_number()) throw format("scale");
    made.scale = static_cast<float>(object.at("scale").get<double>());
  }
  made.data = counts(object, "data");
  made.keys = counts(object, "keys");
  return made;
}

// The slots, after every site was seen to lie inside the program and outside all others.
std::vector<Slot> slots_of(const Json& table, std::int64_t program_size) {
  if (integer(table, "schema") != 1 || integer(table, "program_size") != program_size) throw format("program_size");
  std::vector<Slot> slots;
  std::vector<std::pair<std::int64_t, std::int64_t>> sites;
  for (const Json& each : list(table, "tensors")) {
    slots.push_back(slot(each, program_size));
    for (const std::int64_t at : slots.back().data) sites.emplace_back(at, slots.back().size);
    for (const std::int64_t at : slots.back().keys) sites.emplace_back(at, kKey);
  }
  std::sort(sites.begin(), sites.end());
  std::int64_t end = 0;
  for (const auto& [at, size] : sites) {
    if (at < end || size > program_size || at > program_size - size) throw Error("format", "sites overlap or end late");
    end = at + size;
  }
  return slots;
}

}  // namespace

std::string sha256(std::string_view bytes) {
  unsigned char raw[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), raw, &size, EVP_sha256(), nullptr) != 1) {
    throw Error("integrity", "SHA-256 is not to be had");
  }
  std::string hex;
  for (unsigned int i = 0; i < size; ++i) {
    hex.push_back("0123456789abcdef"[raw[i] >> 4]);
    hex.push_back("0123456789abcdef"[raw[i] & 15]);
  }
  return hex;
}

void verify(std::string_view public_key, std::string_view manifest, std::string_view signature) {
  const std::unique_ptr<BIO, int (*)(BIO*)> pem(
      BIO_new_mem_buf(public_key.data(), static_cast<int>(public_key.size())), BIO_free);
  const std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)> key(PEM_read_bio_PUBKEY(pem.get(), nullptr, nullptr, nullptr),
                                                           EVP_PKEY_free);
  char curve[32] = "";
  if (!key || EVP_PKEY_get_group_name(key.get(), curve, sizeof curve, nullptr) != 1 ||
      std::string_view(curve) != "prime256v1") {
    throw Error("format", "the key is no P-256 key in PEM");
  }
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  const bool sound = EVP_DigestVerifyInit(context.get(), nullptr, EVP_sha256(), nullptr, key.get()) == 1 &&
                     EVP_DigestVerify(context.get(), reinterpret_cast<const unsigned char*>(signature.data()),
                                      signature.size(), reinterpret_cast<const unsigned char*>(manifest.data()),
                                      manifest.size()) == 1;
  if (!sound) throw Error("integrity", "the manifest's signature does not match this key");
}

std::string relink(std::string_view packed_template, std::string_view table, std::string_view factors,
                   const File& program) {
  if (program.size > kMaxProgram) throw Error("format", "a program larger than 2 GiB");
  const std::vector<Slot> slots = slots_of(parse(inflated(table, kMaxTable)), program.size);
  std::string out = inflated(packed_template, static_cast<std::size_t>(program.size));
  if (out.size() != static_cast<std::size_t>(program.size)) throw Error("format", "the template is too short");
  for (const Slot& slot : slots) {
    const auto wire = static_cast<std::size_t>(slot.count * width_of(slot.source));
    if (wire > factors.size()) throw Error("format", "the factors end too early");
    const std::string data = folded(factors.substr(0, wire), slot.source, slot.dtype, slot.scale);
    factors.remove_prefix(wire);
    const std::string key = sha256(data);
    for (const std::int64_t at : slot.data) data.copy(out.data() + at, data.size());
    for (const std::int64_t at : slot.keys) key.copy(out.data() + at, key.size());
  }
  if (!factors.empty()) throw Error("format", "there are more factors than the table describes");
  if (sha256(out) != program.digest) throw Error("digest", "the program is not the pinned one");
  return out;
}

}  // namespace ptdock

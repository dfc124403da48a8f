// Strict JSON on nlohmann's parser: UTF-8 without BOM, no key twice, integers that are integers and fit 64 bits.
#pragma once

#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "ptdock.hpp"

namespace ptdock {

using Json = nlohmann::json;

inline Error format(const std::string& field) {
  return Error("format", "'" + field + "' is missing, or not what it should be");
}

inline Json parse(std::string_view bytes) {
  if (bytes.substr(0, 3) == "\xEF\xBB\xBF") throw Error("format", "a byte order mark is not JSON");
  std::vector<std::set<std::string>> open;
  const auto unique = [&open](int, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start) open.emplace_back();
    if (event == Json::parse_event_t::object_end) open.pop_back();
    if (event == Json::parse_event_t::key && !open.back().insert(value.get<std::string>()).second) {
      throw Error("format", "the key '" + value.get<std::string>() + "' stands twice");
    }
    return true;
  };
  try {
    Json document = Json::parse(bytes.begin(), bytes.end(), unique);
    if (!document.is_object()) throw Error("format", "the document is not an object");
    return document;
  } catch (const Json::exception& error) {
    throw Error("format", error.what());
  }
}

inline const Json& member(const Json& object, const char* name) {
  if (!object.is_object() || !object.contains(name)) throw format(name);
  return object.at(name);
}

inline std::int64_t integer(const Json& value, const char* name, std::int64_t low = 0) {
  if (value.is_object()) return integer(member(value, name), name, low);
  constexpr auto high = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<std::uint64_t>() > high)) {
    throw format(name);
  }
  const auto number = value.get<std::int64_t>();
  if (number < low) throw format(name);
  return number;
}

inline std::string text(const Json& object, const char* name) {
  const Json& value = member(object, name);
  if (!value.is_string()) throw format(name);
  return value.get<std::string>();
}

inline const Json& list(const Json& object, const char* name) {
  const Json& value = member(object, name);
  if (!value.is_array()) throw format(name);
  return value;
}

}  // namespace ptdock

// Reads the JSON of a safetensors header: the half of parse_safetensors that deals with text. Not for other callers.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/safetensors_index.h"

namespace lockstep {

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in the header's order; each fits its shape and is within the data area
  std::vector<std::int64_t> places;       // for each entry, the byte of the file where its name ends
  SafetensorsMetadata metadata;
};

// `json` is the header, which begins at byte 8 of the file; `data_bytes` follow it.
SafetensorsHeader read_safetensors_header(std::string_view json, std::int64_t data_bytes, const std::string& where);

// "<where>: byte <place>: <reason>; <remedy>" as a UserError.
[[noreturn]] void refuse_safetensors(const std::string& where, std::int64_t place, const std::string& reason);

// Text out of a file as it may stand in a one-line message: in quotes, clipped, everything but plain ASCII escaped.
std::string printable(std::string_view text);

}  // namespace lockstep

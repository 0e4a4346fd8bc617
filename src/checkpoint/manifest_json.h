// The JSON of a manifest, parsed in time proportional to its bytes.
//
// It does what spec/text/json_fields.h does for a short config file, repeated keys included, for lists of any length:
// the parser used there searches a list again whenever an object in it ends.
//
// Failure: UserError (checkpoint), one line.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace lockstep {

// An object in which no key comes twice, at any depth.
nlohmann::json parse_manifest_json(std::string_view text, const std::string& where);

}  // namespace lockstep

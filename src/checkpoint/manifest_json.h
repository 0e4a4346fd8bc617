// The JSON of a manifest, in time that grows with its bytes.
//
// What spec/text/json_fields.h does with a short config file, keys that come twice included, for lists of any length:
// the parser used there looks through a list again whenever an object in it ends.
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

// A source of data that is chosen on the command line replaces the run file's.
#pragma once
#include "spec/text/toml_fields.h"

namespace lockstep {

// Drops what the file has of other sources, and keys that only make sense with these.
void unmake_data_choices(TomlDocument& document);

}  // namespace lockstep

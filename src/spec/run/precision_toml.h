// The keys of [precision] (spec/model/precision.h): read, and written back.
#pragma once
#include "spec/model/precision.h"

namespace lockstep {

class TomlDocument;
class TomlTable;
class TomlWriter;

// UserError of code usage, as spec/text/toml_fields.h says, for a key that would do nothing too.
void read_precision(const TomlTable& table, PrecisionSpec& precision);
void write_precision(const PrecisionSpec& precision, TomlWriter& writer);

// Drops keys of the file that only make sense under another choice than the command line's.
void unmake_precision_choices(TomlDocument& document);

}  // namespace lockstep

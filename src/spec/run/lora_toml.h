// The table [lora] of a run file (lora_spec.h).
#pragma once
#include "spec/run/lora_spec.h"

namespace lockstep {

class TomlDocument;
class TomlTable;
class TomlWriter;

// UserError of code usage, as spec/text/toml_fields.h says, for a key that would do nothing too.
void read_lora(const TomlTable& table, LoraSpec& lora);
void write_lora(const LoraSpec& lora, TomlWriter& writer);

// Drops keys of the file that do nothing with the command line's rank.
void unmake_lora_choices(TomlDocument& document);

}  // namespace lockstep

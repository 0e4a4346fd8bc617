// The table [sparsity] of a run file (sparsity_spec.h).
#pragma once
#include "spec/run/sparsity_spec.h"

namespace lockstep {

class TomlDocument;
class TomlTable;
class TomlWriter;

// UserError of code usage, as spec/text/toml_fields.h says, for a key that would do nothing too.
void read_sparsity(const TomlTable& table, SparsitySpec& sparsity);
void write_sparsity(const SparsitySpec& sparsity, TomlWriter& writer);

// Drops keys of the file that only make sense under another choice than the command line's.
void unmake_sparsity_choices(TomlDocument& document);

}  // namespace lockstep

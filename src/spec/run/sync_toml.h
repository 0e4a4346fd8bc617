// The table [sync] of a run file (sync_spec.h).
#pragma once
#include "spec/run/sync_spec.h"

namespace lockstep {

class TomlDocument;
class TomlTable;
class TomlWriter;

// UserError of code usage, as spec/text/toml_fields.h says, for a key that would do nothing too.
void read_sync(const TomlTable& table, SyncSpec& sync);
void write_sync(const SyncSpec& sync, TomlWriter& writer);

// Drops keys of the file that only make sense under another choice than the command line's.
void unmake_sync_choices(TomlDocument& document);

}  // namespace lockstep

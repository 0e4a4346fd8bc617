// The table [memory] of a run file (memory_spec.h).
#pragma once
#include "spec/run/memory_spec.h"

namespace lockstep {

class TomlDocument;
class TomlTable;
class TomlWriter;

// Every key acts: one that does nothing beside the others is refused. Keys that are not there have their defaults. A
// path is taken as it stands.
void read_memory(const TomlTable& table, MemorySpec& memory);
void write_memory(const MemorySpec& memory, TomlWriter& writer);
// A choice made on the command line unmakes the file's: what only makes sense under the other choice goes.
void unmake_memory_choices(TomlDocument& document);

}  // namespace lockstep

// A layout as text: the table [layout] of a run file, and the option --layout.
#pragma once
#include <string_view>

#include "spec/layout_spec.h"

namespace lockstep {

class TomlDocument;
class TomlTable;
class TomlWriter;

// Every key acts: one that does nothing beside the others is refused. Keys that are not there have their defaults.
void read_layout(const TomlTable& table, LayoutSpec& layout);
void write_layout(const LayoutSpec& layout, TomlWriter& writer);
// A choice made on the command line unmakes the file's: what only makes sense under the other choice goes.
void unmake_layout_choices(TomlDocument& document);

// "dp=2,micro=3,overlap=off". UserError (usage) naming the key.
LayoutSpec parse_layout(std::string_view text);

}  // namespace lockstep

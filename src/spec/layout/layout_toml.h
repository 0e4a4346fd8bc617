// A layout as text: the table [layout] of a run file, and the option --layout.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "spec/layout/layout_spec.h"

namespace lockstep {

struct TomlItem;
class TomlDocument;
class TomlTable;
class TomlWriter;

// Every key acts: one that does nothing beside the others is refused. Keys that are not there have their defaults.
void read_layout(const TomlTable& table, LayoutSpec& layout);
void write_layout(const LayoutSpec& layout, TomlWriter& writer);
// A choice made on the command line unmakes the file's: what only makes sense under the other choice goes.
void unmake_layout_choices(TomlDocument& document);

// "dp=2,micro=3,overlap=off": the whole layout, a key that is not named having its default. Of the settings
// ("layout.micro=2") those of a layout stand over it, each changing one key. UserError (usage) naming the key; one that
// is named twice is refused.
LayoutSpec parse_layout(std::string_view text, std::span<const std::string> sets = {});
std::vector<TomlItem> layout_items(std::string_view text);  // its keys and values, in order
bool sets_layout(const std::string& set);                   // whether a setting is of the layout

}  // namespace lockstep

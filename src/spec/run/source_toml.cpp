#include "spec/run/source_toml.h"

#include <algorithm>

#include "spec/text/text_input.h"
#include "spec/text/toml_keys.h"

namespace lockstep {

namespace {

// What every source has; where its tokens are is read and written apart from it.
template <class Spec, class Visitor>
void visit_source(Spec& source, Visitor&& visit) {
  visit("epochs", source.epochs, Real{.least = 0, .most = 1e6});
  visit("eval_share", source.eval_share, Real{.least = 0, .most = 1, .below_most = true});
}

bool plain_name(std::string_view name) {
  return !name.empty() && name.size() <= 64 && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

SourceSpec read_source(const TomlTable& table, const std::string& name, double eval_share, const PathOfKey& path) {
  SourceSpec source{.name = name, .text = {}, .tokens = {}, .weight = {}, .eval_share = eval_share};
  Collect known;
  visit_source(source, known);
  table.refuse_unknown(Keys{"text", "tokens", "token_type", "weight"} + known.keys);
  table("text", source.text);
  for (std::string& one : source.text) one = path(table, "text", one);
  table("tokens", source.tokens);
  if (table.has("tokens")) source.tokens = path(table, "tokens", source.tokens);
  if (source.text.empty() == source.tokens.empty())
    table.refuse(source.text.empty() ? "" : "tokens",
                 fmt::format("[data.source.{}] has {} text {} tokens", name, source.text.empty() ? "neither" : "both",
                             source.text.empty() ? "nor" : "and"),
                 source.text.empty() ? "add tokens = \"FILE\" or text = \"FILE or FOLDER\"" : "keep one of the two");
  read_token_type(table, !source.tokens.empty(), source.token_type);
  if (table.has("weight") && !table.by_set("weight") && !table.shown("weight").starts_with("'"))
    table("weight", source.weight.steps.front().weight, Real{.least = 0, .most = 1e9});
  else
    table("weight", source.weight);
  visit_source(source, table);
  return source;
}

}  // namespace

void read_token_type(const TomlTable& table, bool has_tokens, TokenType& type) {
  if (!table.has("token_type")) return;
  if (!has_tokens)
    table.refuse("token_type", "token_type does nothing without tokens: it is of a file of ids", "remove it");
  constexpr std::string_view kNames[] = {name_of(TokenType::u16), name_of(TokenType::u32)};
  if (const auto chosen = table.choice("token_type", kNames)) type = *chosen == 0 ? TokenType::u16 : TokenType::u32;
}

std::vector<SourceSpec> read_sources(const TomlTable& sources, double eval_share, const PathOfKey& path) {
  std::vector<SourceSpec> read;
  for (const std::string& name : sources.keys()) {
    if (!plain_name(name))
      sources.refuse(name, fmt::format("a source is called {}", quote_text(name)),
                     "use up to 64 letters, digits, '_' and '-' for a name");
    if (read.size() == kMostSources)
      sources.refuse(name, fmt::format("more than {} sources", kMostSources), "join some of them into one token file");
    const TomlTable table = sources.table(name);
    if (!table.present()) continue;
    read.push_back(read_source(table, name, eval_share, path));
  }
  return read;
}

void write_sources(const std::vector<SourceSpec>& sources, TomlWriter& writer) {
  for (const SourceSpec& source : sources) {
    writer.table("data.source." + source.name);
    if (!source.text.empty()) writer("text", source.text);
    if (!source.tokens.empty()) writer("tokens", source.tokens);
    if (source.token_type != TokenType::named) writer("token_type", source.token_type);
    writer("weight", source.weight);
    visit_source(source, writer);
  }
}

}  // namespace lockstep

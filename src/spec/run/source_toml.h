// The sources of a mixture in a run file: a table [data.source.NAME] for each, in the order of their names.
//
//   [data]
//   weigh_by = "tokens"        # or "documents"
//   [data.source.web]
//   tokens = "web.tokens"      # or text = ["FILE", "FOLDER"], of data.tokenizer or as bytes
//   token_type = "u16"         # of a file of ids without a header
//   weight = 0.7               # or "0.7, 0.3@10000": over the samples consumed
//   epochs = 4                 # at most
//   eval_share = 0.01          # else data.eval_share
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "spec/run/source_spec.h"
#include "spec/text/toml_fields.h"

namespace lockstep {

// `path` makes one absolute; `eval_share` is that of [data].
using PathOfKey = std::function<std::string(const TomlTable& table, std::string_view key, const std::string& path)>;
std::vector<SourceSpec> read_sources(const TomlTable& sources, double eval_share, const PathOfKey& path);
void write_sources(const std::vector<SourceSpec>& sources, TomlWriter& writer);

// token_type, of data.tokens and of a source's: refused where there are no tokens, or the value names none.
void read_token_type(const TomlTable& table, bool has_tokens, TokenType& type);

}  // namespace lockstep

// Cases of a tokenizer, as another program made them: texts with their ids and what comes of decoding these.
//
// DIR/cases.json is a list of {"text", "ids" (with what the template adds), "plain_ids" (without), "decoded" (of
// plain_ids), "decoded_without_special" (of ids, special tokens left out)}.
// Failure: UserError (bad_input_file) when the tokenizer or the cases are bad.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

#include "data/tokenizer/tokenizer.h"

namespace lockstep {

struct TokenizerCases {
  std::int64_t cases = 0;
  std::int64_t differ = 0;
  // Of the first that differs; empty: none does.
  std::string first;  // "case 3, text 'a b', ids: 5 8 where 5 9 is expected, from token 1 on"
  bool ok() const { return differ == 0; }
};

TokenizerCases check_tokenizer_cases(const Tokenizer& tokenizer, const std::filesystem::path& cases_file);

}  // namespace lockstep

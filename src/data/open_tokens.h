// Opens a file of token ids of any supported form, mapped: tokens are read in place (docs/data.md, "Token files from
// elsewhere").
//
//   Lockstep      its own token files (token_file.h)
//   Megatron-LM   an indexed dataset: NAME.bin with NAME.idx beside it; either may be named
//   llm.c         a .bin with a header of 1024 bytes: ids of 16 bits (GPT-2) or 32 bits (Llama 3)
//   raw           ids of 16 or 32 bits and nothing else, as nanoGPT writes them; `type` says which
//
// The first three say themselves what they are, and `type` is then refused. Files from elsewhere say no vocabulary: ids
// are held to `vocabulary`, that of the model, when they are read; an id beyond it is an error with its position.
//
// Failure: UserError (bad_input_file), one line with the file, the place and a remedy.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>

#include "data/document_tokens.h"
#include "spec/run/source_spec.h"

namespace lockstep {

std::unique_ptr<DocumentTokens> open_tokens(const std::filesystem::path& path, TokenType type, std::int64_t vocabulary);

}  // namespace lockstep

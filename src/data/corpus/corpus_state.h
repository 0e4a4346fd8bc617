// Where an encoded corpus has come to: OUT.progress, by which it is continued.
//
// One JSON object: format ("lockstep tokenize"), version (1), job (of what the work is, as hex digits), tokens and
// documents that are on the disk, targets where they are marked, and the place in the input. It is written beside and
// renamed, so it is whole or not there. A file that says otherwise is refused.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>

#include "data/corpus/document_reader.h"
#include "data/token_file_writer.h"

namespace lockstep {

struct CorpusState {
  std::uint64_t job = 0;
  WrittenTokens written;
  CorpusPlace place;
};

std::filesystem::path corpus_state_of(const std::filesystem::path& out);
void save_corpus_state(const std::filesystem::path& out, const CorpusState& state);
// Nothing where there is none.
std::optional<CorpusState> read_corpus_state(const std::filesystem::path& out);

}  // namespace lockstep

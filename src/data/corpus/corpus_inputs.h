// What a corpus is made of: files, folders and standard input, as text or as JSON lines.
//
// Folders are read as TextSource reads them (text_source.h): in the byte order of their paths, without hidden names,
// empty files and binary ones. As JSON lines, what counts in a folder are names in .jsonl or .ndjson; others are passed
// over and counted. Either may end in .gz or .zst.
//
// Failure: UserError (bad_input_file) for a path that is missing, or a folder without such files; (usage) for a file of
// JSON lines that is named where text is read.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct CorpusInput {
  std::string path;    // or kStandardInput
  bool named = false;  // by the user, not found in a folder
};

struct CorpusInputs {
  std::vector<CorpusInput> files;
  std::int64_t bytes = 0;        // of all files, as they are
  std::int64_t passed_over = 0;  // files of folders, for their names
  std::uint64_t identity = 0;    // of their paths, sizes and times
};

inline constexpr std::string_view kTextWithoutKey = "leave --key out for text";
// `text_by`: how a command that was told to read JSON lines reads text; empty: it cannot.
CorpusInputs find_inputs(std::span<const std::string> paths, bool json, std::string_view text_by = kTextWithoutKey);

}  // namespace lockstep

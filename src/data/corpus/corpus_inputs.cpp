#include "data/corpus/corpus_inputs.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "base/checksum.h"
#include "base/error.h"
#include "data/corpus/byte_stream.h"
#include "data/text_source.h"

namespace lockstep {

namespace {

bool is_json_lines(std::string_view path) {
  const std::string_view name = without_compression(path);
  return name.ends_with(".jsonl") || name.ends_with(".ndjson");
}

}  // namespace

CorpusInputs find_inputs(std::span<const std::string> paths, bool json, std::string_view text_by) {
  CorpusInputs inputs;
  for (const std::string& path : paths) {
    std::error_code ignored;
    if (path == kStandardInput || !std::filesystem::is_directory(path, ignored)) {
      if (!json && is_json_lines(path))
        throw UserError(ExitCode::usage, fmt::format("{}: is named as JSON lines, and no key is given", path),
                        "name the key of the text, as in --key text");
      inputs.files.push_back({path, true});
      continue;
    }
    const std::size_t before = inputs.files.size();
    for (const std::filesystem::path& file : text_files_below(path)) {
      if (!json || is_json_lines(file.native()))
        inputs.files.push_back({file.string(), false});
      else
        ++inputs.passed_over;
    }
    if (json && inputs.files.size() == before)
      throw UserError(
          ExitCode::bad_input_file, fmt::format("{}: no file in it is called .jsonl or .ndjson", path),
          text_by.empty() ? "name files of JSON lines" : fmt::format("name the files themselves, or {}", text_by));
  }
  if (std::ranges::count(inputs.files, kStandardInput, &CorpusInput::path) > 1)
    throw UserError(ExitCode::usage, "standard input is named twice", "name - once");
  Checksum identity;
  for (const CorpusInput& input : inputs.files) {
    struct stat status {};
    // What cannot be looked at is refused when it is opened.
    if (input.path != kStandardInput && ::stat(input.path.c_str(), &status) == 0) inputs.bytes += status.st_size;
    const std::string what =
        fmt::format("{}\n{} {} {}\n", input.path, status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
    identity.update(std::as_bytes(std::span(what)));
  }
  inputs.identity = identity.value();
  return inputs;
}

}  // namespace lockstep

#include "data/text_source.h"

#include <algorithm>
#include <memory>
#include <new>
#include <set>
#include <stdexcept>
#include <system_error>

#include "base/checksum.h"
#include "base/error.h"
#include "base/mapped_file.h"
#include "data/byte_tokenizer.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLookedAt = 8192;  // bytes of a file in which a zero says that it is binary

[[noreturn]] void refuse(const fs::path& path, const std::string& problem, const std::string& remedy) {
  throw UserError(ExitCode::bad_input_file, fmt::format("{}: {}", path.string(), problem), remedy);
}

std::string_view text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

bool is_binary(std::string_view text) { return text.substr(0, kLookedAt).find('\0') != std::string_view::npos; }

bool hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

void collect(const fs::path& folder, std::set<fs::path>& seen, std::vector<fs::path>& files) {
  const auto check = [&folder](const std::error_code& error) {
    if (error) refuse(folder, "cannot be read: " + error.message(), "give it read permission or name other folders");
  };
  std::error_code error;
  const fs::path real = fs::canonical(folder, error);
  check(error);
  if (!seen.insert(real).second) return;

  std::vector<fs::path> entries;
  fs::directory_iterator at(folder, error);
  for (; !error && at != fs::directory_iterator(); at.increment(error)) entries.push_back(at->path());
  check(error);
  // Sorted here as well, since the first path to a folder wins.
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.native() < b.native(); });

  for (const fs::path& entry : entries) {
    if (hidden(entry)) continue;
    const fs::file_status status = fs::status(entry, error);
    // A link to itself is as harmless as one to nothing; whatever else keeps us from looking is an error, since text
    // that is left out in silence changes what is learned.
    if (status.type() == fs::file_type::none && error != std::errc::too_many_symbolic_link_levels) {
      refuse(entry, "cannot be read: " + error.message(), "give it read permission or move it away");
    }
    if (fs::is_directory(status)) collect(entry, seen, files);
    if (fs::is_regular_file(status)) files.push_back(entry);
  }
}

struct Input {
  fs::path path;
  bool named;  // by the user, not found in a folder
};

std::vector<Input> inputs_of(std::span<const std::string> paths) {
  std::vector<Input> inputs;
  for (const std::string& path : paths) {
    std::error_code ignored;
    if (fs::is_directory(path, ignored)) {
      for (fs::path& file : text_files_below(path)) inputs.push_back({std::move(file), false});
    } else {
      inputs.push_back({path, true});
    }
  }
  return inputs;
}

}  // namespace

std::vector<fs::path> text_files_below(const fs::path& folder) {
  std::set<fs::path> seen;
  std::vector<fs::path> files;
  collect(folder, seen, files);
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.native() < b.native(); });
  return files;
}

void each_text_document(std::span<const std::string> paths,
                        const std::function<void(const fs::path& file, std::string_view text)>& visit) {
  LOCKSTEP_CHECK(!paths.empty(), "no paths of text");
  bool any = false;
  for (const Input& input : inputs_of(paths)) {
    const MappedFile file(input.path);
    const std::string_view text = text_of(file);
    if (input.named && text.empty()) refuse(input.path, "is empty", "name a file with text");
    if (input.named && is_binary(text)) refuse(input.path, "is binary, not text", "name text files");
    if (text.empty() || is_binary(text)) continue;
    visit(input.path, text);
    any = true;
  }
  if (!any) refuse(paths[0], "there is no text in it", "name a folder with text files");
}

std::uintmax_t text_bytes_of(std::span<const std::string> paths) {
  std::uintmax_t bytes = 0;
  for (const Input& input : inputs_of(paths)) {
    std::error_code error;
    const std::uintmax_t size = fs::file_size(input.path, error);
    if (!error) bytes += size + 1;  // else opening it says what is wrong; one for the end of the document
  }
  return bytes;
}

TextSource::TextSource(std::span<const std::string> paths) {
  LOCKSTEP_CHECK(!paths.empty(), "no paths of text");
  const std::uintmax_t room = text_bytes_of(paths);
  try {
    tokens_.reserve(room);
  } catch (const std::exception&) {
    throw UserError(ExitCode::does_not_fit, fmt::format("{}: {} bytes of text do not fit in memory", paths[0], room),
                    "name less text, or make a token file of it");
  }
  each_text_document(paths, [&](const fs::path&, std::string_view text) { add(text); });
  seal();
}

TextSource::TextSource(std::string_view text) {
  if (text.empty()) throw UserError(ExitCode::bad_input_file, "the text is empty", "give some text");
  tokens_.reserve(text.size() + 1);
  add(text);
  seal();
}

std::unique_ptr<TextSource> TextSource::of_documents(std::span<const std::string> documents, std::size_t window) {
  LOCKSTEP_CHECK(!documents.empty() && window > 0, "{} documents in windows of {}", documents.size(), window);
  std::size_t room = 1;
  for (const std::string& document : documents) room += (document.size() / window + 1) * window;
  std::unique_ptr<TextSource> source(new TextSource);
  std::vector<std::uint16_t>& tokens = source->tokens_;
  const auto end = static_cast<std::uint16_t>(kEndOfDocument);
  tokens.reserve(room);
  tokens.push_back(end);
  for (const std::string& document : documents) {
    source->add(document);
    while ((tokens.size() - 1) % window != 0) tokens.push_back(end);
  }
  source->seal();
  return source;
}

void TextSource::add(std::string_view document) {
  for (const char byte : document) tokens_.push_back(static_cast<unsigned char>(byte));
  tokens_.push_back(static_cast<std::uint16_t>(kEndOfDocument));
  ++documents_;
}

void TextSource::seal() { fingerprint_ = checksum(std::as_bytes(std::span(tokens_))); }

bool TextSource::each_document(const VisitDocument& visit) const {
  std::int64_t first = 0;
  for (std::int64_t at = 0; at < tokens(); ++at) {
    if (tokens_[static_cast<std::size_t>(at)] != kEndOfDocument) continue;
    visit(first, at + 1 - first);
    first = at + 1;
  }
  return true;
}

std::int64_t TextSource::vocabulary() const { return kByteVocabulary; }

std::int64_t TextSource::bytes() const { return static_cast<std::int64_t>(tokens_.capacity() * sizeof(std::uint16_t)); }

void TextSource::read(std::int64_t first, std::span<std::int32_t> to) const {
  const auto count = static_cast<std::int64_t>(to.size());
  LOCKSTEP_CHECK(first >= 0 && first <= tokens() && count <= tokens() - first, "{} tokens from {} on, of {}", count,
                 first, tokens());
  std::copy_n(tokens_.begin() + first, count, to.begin());
}

}  // namespace lockstep

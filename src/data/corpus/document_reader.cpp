#include "data/corpus/document_reader.h"

#include <algorithm>

#include "base/error.h"

namespace lockstep {

namespace {

constexpr std::size_t kReadAtOnce = 256 << 10;
constexpr std::size_t kBinaryWithin = 8192;  // as in text_source.cpp
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

}  // namespace

DocumentReader::DocumentReader(const CorpusInputs& inputs, bool json, std::size_t longest, const CorpusPlace& from)
    : inputs_(inputs), json_(json), longest_(longest) {
  place_.input = from.input;
  if (from.bytes > 0) skip(from);
}

// To a place inside an input: by a seek, else by reading all before it.
void DocumentReader::skip(const CorpusPlace& from) {
  stream_ = open_bytes(input().path);
  place_ = from;
  if (stream_->skip_to(from.bytes)) return;
  std::string room(kReadAtOnce, '\0');
  std::int64_t left = from.bytes;
  while (left > 0) {
    const auto most = static_cast<std::size_t>(std::min<std::int64_t>(left, std::ssize(room)));
    const std::size_t count = stream_->read(std::span(room).first(most));
    if (count == 0) break;
    left -= static_cast<std::int64_t>(count);
    if (input().path == kStandardInput) read_.update(std::as_bytes(std::span(room).first(count)));
  }
  if (left > 0 || (input().path == kStandardInput && read_.value() != from.read))
    throw UserError(ExitCode::bad_input_file, fmt::format("{}: is not what was read before", shown_name(input().path)),
                    "give the same input again, or remove the .progress file to begin anew");
}

void DocumentReader::too_long(std::int64_t line) const {
  const std::string where = line > 0 ? fmt::format("{}:{}", shown_name(input().path), line) : shown_name(input().path);
  throw UserError(ExitCode::bad_input_file,
                  fmt::format("{}: {} than {} MiB", where, line > 0 ? "the line is longer" : "the document is longer",
                              longest_ >> 20),
                  "split it, or give --longest more MiB");
}

void DocumentReader::close() {
  raw_before_ += stream_ ? stream_->raw_bytes() : 0;
  raw_ = raw_before_;
  stream_.reset();
  read_ = Checksum();
  rest_.clear();
  place_ = {.input = place_.input + 1};
}

// Appends up to so many bytes of the input to the batch.
std::size_t DocumentReader::fill(RawBatch& batch, std::size_t room) {
  const std::size_t before = batch.bytes.size();
  batch.bytes.resize(before + room);
  const std::size_t count = stream_->read(std::span(batch.bytes).subspan(before));
  batch.bytes.resize(before + count);
  raw_ = raw_before_ + stream_->raw_bytes();
  return count;
}

std::optional<RawBatch> DocumentReader::next() {
  RawBatch batch;
  while (place_.input < std::ssize(inputs_.files) && batch.bytes.size() < kBatchBytes) {
    if (!stream_) stream_ = open_bytes(input().path);
    json_ ? read_lines(batch) : read_text(batch);
  }
  batch.after = place_;
  if (batch.documents.empty() && place_.input == std::ssize(inputs_.files)) return std::nullopt;
  return batch;
}

// Whole lines, at least one unless the input ends. What follows the last of them waits in rest_.
void DocumentReader::read_lines(RawBatch& batch) {
  const std::size_t first = batch.bytes.size();
  batch.bytes += rest_;
  rest_.clear();
  std::size_t searched = first, begin = first;  // of the line that is being read
  const auto add = [&](std::size_t end) {
    ++place_.lines;
    std::size_t from = begin, to = end;
    const auto text = [&] { return std::string_view(batch.bytes).substr(from, to - from); };
    if (place_.lines == 1 && text().starts_with(kByteOrderMark)) from += kByteOrderMark.size();
    if (text().ends_with('\r')) --to;
    if (to - from > longest_) too_long(place_.lines);
    if (text().find_first_not_of(" \t\r") != std::string_view::npos)
      batch.documents.push_back({.begin = from, .end = to, .input = place_.input, .line = place_.lines});
  };
  for (;;) {
    for (std::size_t newline; (newline = batch.bytes.find('\n', searched)) != std::string::npos; searched = begin) {
      add(newline);
      place_.bytes += static_cast<std::int64_t>(newline + 1 - begin);
      begin = newline + 1;
    }
    searched = batch.bytes.size();
    if (begin > first && batch.bytes.size() >= kBatchBytes) break;
    if (batch.bytes.size() - begin > longest_ + 1) too_long(place_.lines + 1);
    if (fill(batch, kReadAtOnce) > 0) continue;
    if (begin < batch.bytes.size()) add(batch.bytes.size());
    close();
    return;
  }
  if (input().path == kStandardInput) {
    read_.update(std::as_bytes(std::span(batch.bytes).subspan(first, begin - first)));
    place_.read = read_.value();
  }
  rest_ = batch.bytes.substr(begin);
  batch.bytes.resize(begin);
}

void DocumentReader::read_text(RawBatch& batch) {
  const std::size_t begin = batch.bytes.size();
  while (fill(batch, kReadAtOnce) > 0)
    if (batch.bytes.size() - begin > longest_) too_long(0);
  const std::string_view text = std::string_view(batch.bytes).substr(begin);
  const bool binary = text.substr(0, kBinaryWithin).find('\0') != std::string_view::npos;
  const auto refuse_text = [&](const char* problem, const char* remedy) {
    throw UserError(ExitCode::bad_input_file, fmt::format("{}: {}", shown_name(input().path), problem), remedy);
  };
  if (input().named && text.empty()) refuse_text("is empty", "name a file with text");
  if (input().named && binary) refuse_text("is binary, not text", "name text files");
  if (binary)
    batch.bytes.resize(begin);
  else if (!text.empty())
    batch.documents.push_back({.begin = begin, .end = batch.bytes.size(), .input = place_.input, .line = 0});
  close();
}

}  // namespace lockstep

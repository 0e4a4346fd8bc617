#include "data/document_index_builder.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <numeric>
#include <random>

#include "base/checksum.h"
#include "base/error.h"
#include "data/best_fit.h"
#include "data/sampler.h"
#include "data/windowed_dataset.h"

namespace lockstep {
namespace {

// The pieces of some samples, in order.
struct Samples {
  std::vector<std::int64_t> firsts;  // of each sample, into the pieces
  std::vector<std::int64_t> tokens;
  std::vector<std::uint32_t> lengths;  // with kPieceContinues

  std::int64_t count() const { return std::ssize(firsts); }
  void begin_sample() { firsts.push_back(std::ssize(tokens)); }
  void add(std::int64_t first, std::int64_t count, bool continues) {
    tokens.push_back(first);
    lengths.push_back(static_cast<std::uint32_t>(count) | (continues ? kPieceContinues : 0));
  }
};

struct Pieces {
  std::vector<std::int64_t> first;
  std::vector<std::int32_t> length;
  std::vector<bool> continues;
  std::int64_t truncated = 0, shortened = 0, left_out = 0;

  // A piece in which nothing is to be learned is left out.
  bool add(const TokenSource& source, std::int64_t at, std::int64_t count, bool goes_on) {
    if (source.marks_targets() && source.count_targets(at + 1, count - (goes_on ? 0 : 1)) == 0) {
      truncated += count;
      return false;
    }
    first.push_back(at);
    length.push_back(static_cast<std::int32_t>(count));
    continues.push_back(goes_on);
    return true;
  }
  void add_document(const TokenSource& source, std::int64_t at, std::int64_t count,
                    const DocumentIndexSettings& settings) {
    if (settings.kind == Documents::nosplit) {
      const bool any = add(source, at, std::min(count, settings.T), false);
      truncated += std::max<std::int64_t>(0, count - settings.T);
      (any ? shortened : left_out) += !any || count > settings.T ? 1 : 0;
      return;
    }
    bool any = false;
    for (; count > settings.T; at += settings.T, count -= settings.T) any |= add(source, at, settings.T, true);
    any |= add(source, at, count, false);
    left_out += any ? 0 : 1;
  }
};

void pack(Samples& to, const Pieces& pieces, std::int64_t T) {
  const Packing packing = best_fit(pieces.length, T);
  const Sampler order(packing.bins, 0);
  std::vector<std::int64_t> place(static_cast<std::size_t>(packing.bins));  // of a bin, among the samples
  for (std::int64_t at = 0; at < packing.bins; ++at) place[static_cast<std::size_t>(order.sample_of(at))] = at;
  // A counting sort of the pieces by their samples.
  std::vector<std::int64_t> next(static_cast<std::size_t>(packing.bins) + 1);
  for (const std::int64_t bin : packing.bin) ++next[static_cast<std::size_t>(place[static_cast<std::size_t>(bin)]) + 1];
  std::partial_sum(next.begin(), next.end(), next.begin());
  const auto before = static_cast<std::int64_t>(to.tokens.size());
  for (std::int64_t s = 0; s < packing.bins; ++s) to.firsts.push_back(before + next[static_cast<std::size_t>(s)]);
  to.tokens.resize(to.tokens.size() + pieces.first.size());
  to.lengths.resize(to.tokens.size());
  for (std::size_t i = 0; i < pieces.first.size(); ++i) {
    const auto sample = static_cast<std::size_t>(place[static_cast<std::size_t>(packing.bin[i])]);
    const auto at = static_cast<std::size_t>(before + next[sample]++);
    to.tokens[at] = pieces.first[i];
    to.lengths[at] = static_cast<std::uint32_t>(pieces.length[i]) | (pieces.continues[i] ? kPieceContinues : 0);
  }
}

// One after another, until the next does not fit.
void pack_in_order(Samples& to, const Pieces& pieces, std::int64_t T) {
  std::int64_t room = 0;
  for (std::size_t i = 0; i < pieces.first.size(); ++i) {
    const std::int64_t count = pieces.length[i];
    if (count > room) to.begin_sample(), room = T;
    to.add(pieces.first[i], count, pieces.continues[i]);
    room -= count;
  }
}

[[noreturn]] void refuse_unknown(const std::string& name) {
  throw UserError(ExitCode::bad_input_file, fmt::format("{}: it does not say where documents end", name),
                  "use data.documents=stream, or make a token file of the text with `lockstep tokenize`");
}

struct Packed {
  Samples samples;
  std::int64_t training = 0, truncated = 0, shortened = 0, left_out = 0;
};

Packed pack_documents(const TokenSource& source, const DocumentIndexSettings& settings, const std::string& name) {
  // The documents that begin before this token are for training.
  const auto share = static_cast<std::int64_t>(settings.eval_share * static_cast<double>(source.tokens()));
  const std::int64_t border =
      settings.eval_share > 0 ? source.tokens() - std::max<std::int64_t>(1, share) : source.tokens();
  Pieces training, evaluation;
  std::int64_t last = 0;  // where the last document begins: if there is evaluation, at least it is for that
  const bool known = source.each_document([&](std::int64_t first, std::int64_t count) {
    (first + count <= border ? training : evaluation).add_document(source, first, count, settings);
    last = first;
  });
  if (!known) refuse_unknown(name);
  if (training.first.empty() && training.left_out > 0)
    throw UserError(ExitCode::bad_input_file,
                    fmt::format("{}: none of the {} conversations to train on has an answer in its first {} tokens",
                                name, training.left_out, settings.T),
                    "use a larger data.seq, or data.documents=packed");
  if (training.first.empty())
    throw UserError(ExitCode::bad_input_file,
                    last == 0 ? fmt::format("{}: it is one document, which training and evaluation cannot share", name)
                              : fmt::format("{}: its documents leave none for training beside data.eval_share = {}",
                                            name, settings.eval_share),
                    last == 0 ? "use data.eval_share=0 or data.documents=masked, or give more documents"
                              : "use a smaller data.eval_share, or give more documents");
  if (evaluation.first.empty() && evaluation.left_out > 0)
    throw UserError(ExitCode::bad_input_file,
                    fmt::format("{}: none of the {} conversations for evaluation has an answer in its first {} tokens",
                                name, evaluation.left_out, settings.T),
                    "use a larger data.seq or data.eval_share");
  Packed packed;
  const auto samples_of = settings.kind == Documents::varlen ? pack_in_order : pack;
  samples_of(packed.samples, training, settings.T);
  packed.training = packed.samples.count();
  if (!evaluation.first.empty()) samples_of(packed.samples, evaluation, settings.T);
  packed.truncated = training.truncated + evaluation.truncated;
  packed.shortened = training.shortened + evaluation.shortened;
  packed.left_out = training.left_out + evaluation.left_out;
  return packed;
}

// What the last window leaves over is truncated, as windows do.
Packed cut_windows(const TokenSource& source, const DocumentIndexSettings& settings, const std::string& name) {
  const std::int64_t T = settings.T;
  const WindowSplit split = split_windows(name, source.tokens(), T, settings.eval_share);
  const std::int64_t windows = split.train + split.eval;
  Packed packed{.samples = {}, .training = split.train, .truncated = source.tokens() - windows * T};
  const bool known = source.each_document([&](std::int64_t first, std::int64_t count) {
    const std::int64_t end = first + count;
    for (std::int64_t at = first; at < std::min(end, windows * T);) {
      if (at % T == 0) packed.samples.begin_sample();
      const std::int64_t stop = std::min(end, at / T * T + T);
      packed.samples.add(at, stop - at, stop < end);
      at = stop;
    }
  });
  if (!known) refuse_unknown(name);
  return packed;
}

template <class T>
void append(std::vector<std::byte>& to, const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  to.insert(to.end(), bytes.begin(), bytes.end());
}

// false: it cannot be written there.
bool write_index(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  std::filesystem::path partial = path;
  partial += fmt::format(".{}-{:08x}.partial", ::getpid(), std::random_device{}());  // hosts may share the folder
  std::error_code error;
  {
    std::ofstream out(partial, std::ios::binary | std::ios::trunc);
    out.write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
    out.flush();
    if (!out) {
      std::filesystem::remove(partial, error);
      return false;
    }
  }
  std::filesystem::rename(partial, path, error);  // what is torn by a lost machine is noticed by its checksum
  if (!error) return true;
  std::filesystem::remove(partial, error);
  return false;
}

}  // namespace

DocumentIndex::Expected expected_index(const TokenSource& source, const DocumentIndexSettings& settings) {
  std::uint64_t share;
  std::memcpy(&share, &settings.eval_share, sizeof share);
  const std::array<std::uint64_t, 5> identity = {source.fingerprint(), static_cast<std::uint64_t>(source.tokens()),
                                                 static_cast<std::uint64_t>(settings.kind),
                                                 static_cast<std::uint64_t>(settings.T), share};
  return {.identity = checksum(std::as_bytes(std::span(identity))), .T = settings.T, .source_tokens = source.tokens()};
}

std::vector<std::byte> build_document_index(const TokenSource& source, const DocumentIndexSettings& settings,
                                            const std::string& name) {
  LOCKSTEP_CHECK(settings.kind != Documents::stream, "a stream has no index");
  Packed packed =
      settings.kind == Documents::masked ? cut_windows(source, settings, name) : pack_documents(source, settings, name);
  Samples& samples = packed.samples;
  DocumentIndexHeader header{.identity = expected_index(source, settings).identity,
                             .T = settings.T,
                             .source_tokens = source.tokens(),
                             .training_samples = packed.training,
                             .evaluation_samples = samples.count() - packed.training,
                             .pieces = std::ssize(samples.tokens),
                             .truncated = packed.truncated,
                             .shortened = packed.shortened,
                             .left_out = packed.left_out};
  samples.begin_sample();  // where the last one ends
  std::vector<std::byte> bytes(kDocumentIndexHeaderBytes);
  bytes.reserve(static_cast<std::size_t>(header.file_bytes()));
  append(bytes, samples.firsts);
  append(bytes, samples.tokens);
  append(bytes, samples.lengths);
  header.payload_checksum = checksum(std::span(bytes).subspan(static_cast<std::size_t>(kDocumentIndexHeaderBytes)));
  std::ranges::copy(encode(header), bytes.begin());
  return bytes;
}

std::unique_ptr<const DocumentIndex> open_document_index(const std::filesystem::path& path, const TokenSource& source,
                                                         const DocumentIndexSettings& settings,
                                                         const std::string& name) {
  const DocumentIndex::Expected expected = expected_index(source, settings);
  std::error_code error;
  if (!path.empty() && std::filesystem::exists(path, error)) {
    auto file = std::make_unique<MappedFile>(path);
    if (parse_document_index_header(file->bytes(), path.string()).identity == expected.identity)
      return std::make_unique<const DocumentIndex>(std::move(file), path.string(), expected);
  }
  std::vector<std::byte> bytes = build_document_index(source, settings, name);
  if (!path.empty() && write_index(path, bytes))
    return std::make_unique<const DocumentIndex>(std::make_unique<MappedFile>(path), path.string(), expected);
  return std::make_unique<const DocumentIndex>(std::move(bytes), name, expected);
}

}  // namespace lockstep

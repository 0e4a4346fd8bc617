#include "data/windowed_dataset.h"

#include <algorithm>
#include <array>

#include "base/checksum.h"
#include "base/error.h"

namespace lockstep {

std::int64_t windows_in(std::int64_t tokens, std::int64_t sequence) {
  LOCKSTEP_CHECK(tokens >= 0 && sequence >= 1, "{} tokens in windows of {}", tokens, sequence);
  return tokens == 0 ? 0 : (tokens - 1) / sequence;
}

WindowedDataset::WindowedDataset(const TokenSource& source, std::int64_t sequence, std::int64_t first,
                                 std::int64_t count)
    : source_(source), sequence_(sequence), first_(first), count_(count) {
  const std::int64_t windows = windows_in(source.tokens(), sequence);
  LOCKSTEP_CHECK(first >= 0 && count >= 0 && first <= windows && count <= windows - first,
                 "{} windows from {} on, of {}", count, first, windows);
}

void WindowedDataset::sample(std::int64_t index, std::span<std::int32_t> tokens,
                             std::span<std::int32_t> targets) const {
  LOCKSTEP_CHECK(index >= 0 && index < count_, "sample {} of {}", index, count_);
  const auto T = static_cast<std::size_t>(sequence_);
  LOCKSTEP_CHECK(tokens.size() == T && targets.size() == T, "room for {} tokens and {} targets, of {}", tokens.size(),
                 targets.size(), sequence_);
  const std::int64_t at = (first_ + index) * sequence_;
  source_.read(at, tokens);
  source_.read_targets(at + 1, targets);
}

std::uint64_t WindowedDataset::fingerprint() const {
  const std::array<std::uint64_t, 4> identity = {source_.fingerprint(), static_cast<std::uint64_t>(sequence_),
                                                 static_cast<std::uint64_t>(first_),
                                                 static_cast<std::uint64_t>(count_)};
  return checksum(std::as_bytes(std::span(identity)));
}

WindowSplit split_windows(std::string_view name, std::int64_t tokens, std::int64_t sequence, double eval_share) {
  if (sequence < 1 || sequence > std::int64_t{1} << 40) {
    throw UserError(ExitCode::usage, fmt::format("seq = {}", sequence), "choose at least 1, and no more than the data");
  }
  if (!(eval_share >= 0 && eval_share < 1)) {
    throw UserError(ExitCode::usage, fmt::format("an evaluation share of {}", eval_share),
                    "choose one that is at least 0 and below 1");
  }
  const std::int64_t windows = windows_in(tokens, sequence), sides = eval_share > 0 ? 2 : 1;
  if (windows < sides) {
    throw UserError(ExitCode::bad_input_file,
                    fmt::format("{}: {} tokens are too few for seq = {}{}: {} are needed", name, tokens, sequence,
                                sides == 2 ? " with evaluation" : "", sides * sequence + 1),
                    (tokens - 1) / sides < 1
                        ? std::string("give more data")
                        : fmt::format("use data.seq = {} or less, or give more data", (tokens - 1) / sides));
  }
  if (sides == 1) return {.train = windows, .eval = 0};
  const auto share = static_cast<std::int64_t>(eval_share * static_cast<double>(windows));
  const std::int64_t eval = std::clamp(share, std::int64_t{1}, windows - 1);
  return {.train = windows - eval, .eval = eval};
}

}  // namespace lockstep

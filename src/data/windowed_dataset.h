// A row of tokens split into samples: window w is tokens w·T … w·T + T, T to read and T to predict.
//
// Windows begin T tokens apart, so no token is the target of two. Neighbours share one token: the last target of one is
// the first input of the other. At the end up to T - 1 tokens are left over.
//
// split_windows gives the last share of the windows to evaluation: training has windows [0, train), evaluation
// [train, train + eval). No token is predicted by both.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "data/dataset.h"
#include "data/token_source.h"

namespace lockstep {

// (tokens - 1) / T, and 0 when there are no tokens.
std::int64_t windows_in(std::int64_t tokens, std::int64_t sequence);

class WindowedDataset final : public Dataset {
 public:
  // Windows first, first + 1, … of the source, `count` of them; ProgramError unless they exist. The source must outlive
  // this object.
  WindowedDataset(const TokenSource& source, std::int64_t sequence, std::int64_t first, std::int64_t count);

  std::int64_t samples() const override { return count_; }
  std::int64_t sequence() const override { return sequence_; }
  std::int64_t vocabulary() const override { return source_.vocabulary(); }
  bool endless() const override { return false; }
  void sample(std::int64_t index, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) const override;
  std::uint64_t fingerprint() const override;

 private:
  const TokenSource& source_;
  std::int64_t sequence_, first_, count_;
};

struct WindowSplit {
  std::int64_t train = 0;
  std::int64_t eval = 0;
};

// eval is share · windows rounded down, but at least one window goes to each side; share = 0 gives all to training.
// UserError (usage) unless share is in [0, 1) and T at least 1; UserError (bad_input_file) when there are too few
// tokens, with the number that is needed. `name` is what messages call the data.
WindowSplit split_windows(std::string_view name, std::int64_t tokens, std::int64_t sequence, double eval_share);

}  // namespace lockstep

// What training sees: numbered samples of T tokens, each with the T tokens that come next as targets.
//
// targets[t] is the token after tokens[t], or kNoTarget. A sample may be several documents, one after another: then the
// first token of each has kBeginsDocument set, and attention and positions begin anew there. Padding is documents of
// one token without a target; in samples of variable length it is kPadding, which nothing is to be computed of, and
// comes after all tokens. A sample is a function of its index alone; the sampler decides the order in
// which samples are used (sampler.h).
//
// Threads: every member may be called from any thread at once.
#pragma once
#include <cstdint>
#include <limits>
#include <memory>
#include <span>

#include "spec/model/document_pairs.h"

namespace lockstep {

inline constexpr std::int32_t kNoTarget = -1;
inline constexpr std::int32_t kBeginsDocument = std::numeric_limits<std::int32_t>::min();  // a bit, beside the token
inline constexpr std::int32_t kPadding = -1;                                               // no token

class Dataset {
 public:
  Dataset() = default;
  Dataset(const Dataset&) = delete;
  Dataset& operator=(const Dataset&) = delete;
  virtual ~Dataset() = default;

  virtual std::int64_t samples() const = 0;
  virtual std::int64_t sequence() const = 0;  // T
  virtual std::int64_t vocabulary() const = 0;
  // Generated, not collected: more samples than any run sees, and nothing to gain by shuffling.
  virtual bool endless() const = 0;

  // Sample `index` in [0, samples()); both spans hold T. ProgramError otherwise; what the source throws when it is
  // damaged (token_source.h).
  virtual void sample(std::int64_t index, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) const = 0;

  // The documents of samples that are several; none: no token begins one.
  virtual std::shared_ptr<const DocumentPairs> documents() const { return nullptr; }

  // The identity of the samples: content, T and which of the source's samples these are.
  virtual std::uint64_t fingerprint() const = 0;
};

}  // namespace lockstep

#include "parallel/ulysses.h"

#include "kernels/heads.h"

namespace lockstep {

UlyssesExchange::UlyssesExchange(Communicator& ranks, std::int64_t elements, DType dtype, Memory& memory)
    : ranks_(ranks), dtype_(dtype) {
  if (ranks.size() == 1) return;
  going_ = memory.allocate(elements * size_of(dtype), Tag::communication, "heads exchanged");
  coming_ = memory.allocate(elements * size_of(dtype), Tag::communication, "heads exchanged");
}

// visit(part, tokens, heads, sums) for the other end's part of every tensor, rank by rank in the order in which they
// lie: the part in the buffer, and where it is in the tensor one way and the other; `sums`: others have brought the
// same heads before. Gives the elements of all.
template <class Visit>
std::int64_t UlyssesExchange::each_part(std::span<const Exchanged> all, const Buffer& buffer, Visit&& visit) const {
  std::int64_t at = 0;
  for (std::int64_t rank = 0; rank < ranks_.size(); ++rank)
    for (const Exchanged& one : all) {
      const std::int64_t t = one.tokens.dim(1), h = one.tokens.dim(2), n = one.heads.dim(2), N = ranks_.size();
      LOCKSTEP_CHECK(one.heads.dim(1) == N * t && (n * N == h || (n == 1 && N % h == 0)),
                     "{} tokens of {} heads for {} of {} over {} ranks", t, h, one.heads.dim(1), n, N);
      const Shape shape{one.tokens.dim(0), t, n, one.tokens.dim(3)};
      const std::int64_t first = rank * h / N;
      visit(view(buffer, dtype_, shape, at), one.tokens.slice(2, first, n), one.heads.slice(1, rank * t, t),
            rank > 0 && (rank - 1) * h / N == first);
      at += shape.elements();
    }
  return at;
}

void UlyssesExchange::exchange(std::int64_t elements) const {
  ranks_.all_to_all(view(coming_, dtype_, {elements}), view(going_, dtype_, {elements}))->wait();
}

void UlyssesExchange::to_heads(std::span<const Exchanged> all, Stream& stream) const {
  exchange(each_part(all, going_, [&](const Tensor& part, const Tensor& tokens, const Tensor&, bool) {
    copy_heads({.y = part, .x = tokens}, stream);
  }));
  each_part(all, coming_, [&](const Tensor& part, const Tensor&, const Tensor& heads, bool) {
    copy_heads({.y = heads, .x = part}, stream);
  });
}

void UlyssesExchange::to_tokens(std::span<const Exchanged> all, Stream& stream) const {
  exchange(each_part(all, going_, [&](const Tensor& part, const Tensor&, const Tensor& heads, bool) {
    copy_heads({.y = part, .x = heads}, stream);
  }));
  each_part(all, coming_, [&](const Tensor& part, const Tensor& tokens, const Tensor&, bool sums) {
    copy_heads({.y = tokens, .x = part, .accumulate = sums}, stream);
  });
}

}  // namespace lockstep

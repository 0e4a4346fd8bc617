#include "parallel/central_dp.h"

#include <algorithm>
#include <numeric>

#include "kernels/cross_entropy.h"

namespace lockstep {

CentralDp::CentralDp(const Sizes& sizes, Communicator& ranks, Memory& memory) : sizes_(sizes), ranks_(ranks) {
  LOCKSTEP_CHECK(std::ssize(sizes.tokens) == ranks.size(), "tokens of {} ranks for {}", sizes.tokens.size(),
                 ranks.size());
  if (ranks.rank() != 0) return;
  std::int64_t rows = 0;
  for (const std::int64_t tokens : sizes.tokens) rows += std::min(tokens, sizes.chunk);
  logits_ = memory.allocate(rows * sizes.vocabulary * size_of(sizes.sums), Tag::communication, "logits of all ranks");
  if (sizes.compute != sizes.sums)
    d_logits_ =
        memory.allocate(rows * sizes.vocabulary * size_of(sizes.compute), Tag::communication, "logits of all ranks");
}

std::int64_t CentralDp::most_tokens() const { return std::ranges::max(sizes_.tokens); }

void CentralDp::run(const ConstTensor& logits, const Tensor& d_logits, int micro, std::int64_t first, bool training,
                    const Targets& at, Stream& stream) const {
  const std::int64_t V = sizes_.vocabulary;
  std::vector<std::int64_t> rows, elements;  // of this round, by rank
  for (const std::int64_t tokens : sizes_.tokens) {
    rows.push_back(std::clamp<std::int64_t>(tokens - first, 0, sizes_.chunk));
    elements.push_back(rows.back() * V);
  }
  const std::int64_t all = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
  const bool here = ranks_.rank() == 0;
  const Tensor gathered = here ? view(logits_, sizes_.sums, {all, V}) : Tensor{};
  ranks_.gather(gathered, logits, 0, elements)->wait();

  const Tensor gradients =
      !here || !training ? Tensor{} : view(d_logits_.memory() ? d_logits_ : logits_, sizes_.compute, {all, V});
  std::int64_t row = 0, rank_begins = 0;
  for (std::size_t r = 0; here && r < rows.size(); ++r) {
    const std::int64_t from = rank_begins + micro * sizes_.tokens[r] + first;
    if (rows[r] > 0)
      cross_entropy({.losses = at.losses.slice(0, from, rows[r]),
                     .dlogits = training ? gradients.slice(0, row, rows[r]) : Tensor{},
                     .logits = gathered.slice(0, row, rows[r]),
                     .targets = at.targets.slice(0, from, rows[r]),
                     .scale = at.scale},
                    stream);
    row += rows[r];
    rank_begins += sizes_.micro * sizes_.tokens[r];
  }
  if (training) ranks_.scatter(d_logits, gradients, 0, elements)->wait();
}

}  // namespace lockstep

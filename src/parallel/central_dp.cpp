#include "parallel/central_dp.h"

#include <algorithm>
#include <numeric>

#include "kernels/cross_entropy.h"

namespace lockstep {

CentralDp::CentralDp(const Options& options, const Ranks& ranks) : DataParallel(options), ranks_(ranks) {
  if (options.device != Device::meta) tokens_.resize(static_cast<std::size_t>(own().count * options.T));
}

std::int64_t CentralDp::micro_tokens(int rank) const {
  return share_of(options_.B, options_.layout, rank).count / options_.layout.micro * options_.T;
}

std::span<const std::int32_t> CentralDp::own_tokens(std::span<const std::int32_t> given) {
  const std::int64_t count = this->given().count * options_.T;
  LOCKSTEP_CHECK(options_.device == Device::meta || std::ssize(given) == count, "{} tokens for {} samples",
                 given.size(), this->given().count);
  const Device device = ranks_.hosts.device();
  std::vector<std::int64_t> counts;
  for (int r = 0; r < ranks_.hosts.size(); ++r) counts.push_back(micro_tokens(r) * options_.layout.micro);
  const ConstTensor all = count == 0 ? ConstTensor{} : ConstTensor(given.data(), DType::i32, device, {count});
  ranks_.hosts.scatter(Tensor(tokens_.data(), DType::i32, device, {own().count * options_.T}), all, 0, counts)->wait();
  return tokens_;
}

std::unique_ptr<RemoteLoss> CentralDp::make_remote_loss(const RemoteLoss::Options& options, Memory& memory) const {
  std::vector<std::int64_t> tokens;
  for (int r = 0; r < ranks_.hosts.size(); ++r) tokens.push_back(micro_tokens(r));
  return std::make_unique<CentralLoss>(options, std::move(tokens), static_cast<int>(options_.layout.micro),
                                       ranks_.replicas, memory);
}

CentralLoss::CentralLoss(const Options& options, std::vector<std::int64_t> tokens, int micro, Communicator& ranks,
                         Memory& memory)
    : options_(options), tokens_(std::move(tokens)), micro_(micro), ranks_(ranks) {
  LOCKSTEP_CHECK(std::ssize(tokens_) == ranks.size(), "tokens of {} ranks for {}", tokens_.size(), ranks.size());
  if (ranks.rank() != 0) return;
  std::int64_t rows = 0;
  for (const std::int64_t count : tokens_) rows += std::min(count, options.tile);
  const std::int64_t elements = rows * options.vocabulary;
  logits_ = memory.allocate(elements * size_of(options.sums), Tag::communication, "logits of all ranks");
  if (options.compute != options.sums)
    d_logits_ = memory.allocate(elements * size_of(options.compute), Tag::communication, "logits of all ranks");
}

std::int64_t CentralLoss::most_tokens() const { return std::ranges::max(tokens_); }

void CentralLoss::run(const ConstTensor& logits, const Tensor& d_logits, int micro, std::int64_t first, bool training,
                      Stream& stream) const {
  const std::int64_t V = options_.vocabulary;
  std::vector<std::int64_t> rows, elements;  // of this round, by rank
  for (const std::int64_t tokens : tokens_) {
    rows.push_back(std::clamp<std::int64_t>(tokens - first, 0, options_.tile));
    elements.push_back(rows.back() * V);
  }
  const std::int64_t all = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
  const bool here = ranks_.rank() == 0;
  const Tensor gathered = here ? view(logits_, options_.sums, {all, V}) : Tensor{};
  ranks_.gather(gathered, logits, 0, elements)->wait();

  const Tensor gradients =
      !here || !training ? Tensor{} : view(d_logits_.memory() ? d_logits_ : logits_, options_.compute, {all, V});
  std::int64_t row = 0, rank_begins = 0;
  for (std::size_t r = 0; here && r < rows.size(); ++r) {
    const std::int64_t from = rank_begins + micro * tokens_[r] + first;
    if (rows[r] > 0)
      cross_entropy({.losses = options_.tensors.losses.slice(0, from, rows[r]),
                     .dlogits = training ? gradients.slice(0, row, rows[r]) : Tensor{},
                     .logits = gathered.slice(0, row, rows[r]),
                     .targets = options_.tensors.targets.slice(0, from, rows[r]),
                     .scale = options_.tensors.scale,
                     .likeliest = training ? Tensor{} : options_.tensors.likeliest.slice(0, from, rows[r])},
                    stream);
    row += rows[r];
    rank_begins += micro_ * tokens_[r];
  }
  if (training) ranks_.scatter(d_logits, gradients, 0, elements)->wait();
}

}  // namespace lockstep

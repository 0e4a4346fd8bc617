#include "parallel/compressed_sums.h"

#include <algorithm>

#include "base/integers.h"
#include "kernels/elementwise.h"
#include "spec/model/parameters.h"

namespace lockstep {

namespace {

// Where every rank gets all sums, each makes as many blocks of them as can be even.
std::vector<std::int64_t> even_pieces(std::int64_t elements, int ranks) {
  const std::int64_t blocks = ceil_div(elements, kParameterAlignment), each = blocks / ranks, more = blocks % ranks;
  std::vector<std::int64_t> pieces{0};
  for (int r = 0; r < ranks; ++r)
    pieces.push_back(std::min(elements, pieces.back() + (each + (r < more ? 1 : 0)) * kParameterAlignment));
  return pieces;
}

}  // namespace

CompressedSums::CompressedSums(const Options& options, Communicator& ranks, Memory& memory, Stream& stream)
    : options_(options),
      second_group_(ranks.split([](int r) { return Place{.color = 0, .key = r}; }, "compressed")),
      stream_(stream),
      ranks_(ranks) {
  keep(memory);
  if (options.feedback && ranks.rank() == 0) error_.emplace(2, memory);
  for (std::size_t s = 0; s < options.sites.size(); ++s) {
    const Site& site = options.sites[s];
    sums_.push_back(make_compressed_sum({.form = options.form,
                                         .dtype = options.dtype,
                                         .parameters = site.parameters,
                                         .pieces = kept_[s].pieces,
                                         .gathers = site.shards.empty(),
                                         .residual = kept_[s].residual,
                                         .second = kept_[s].second},
                                        {ranks, *second_group_}, memory, stream));
  }
}

void CompressedSums::keep(Memory& memory) {
  const DType sums = accumulator_of(options_.dtype);
  const auto rank = static_cast<std::size_t>(ranks_.rank());
  const bool two_legs = options_.form.kind != Compression::Kind::topk;
  std::int64_t all = 0, second = 0, owed = 0, largest = 0;
  for (const Site& site : options_.sites) {
    Kept& kept = kept_.emplace_back();
    kept.pieces = site.shards.empty() ? even_pieces(site.elements, ranks_.size()) : site.shards;
    const std::int64_t piece = kept.pieces[rank + 1] - kept.pieces[rank];
    all += site.elements;
    owed += piece;
    largest = std::max(largest, site.elements);
    if (two_legs && site.shards.empty()) second += piece;
  }
  if (!options_.feedback) return;
  const auto make = [&](std::int64_t elements, const char* name) {
    Buffer buffer = memory.allocate(elements * size_of(sums), Tag::gradient, name);
    fill({.y = view(buffer, sums, {elements}), .value = 0}, stream_);
    return buffer;
  };
  residual_ = make(all, "residuals");
  second_ = make(second, "residuals");
  owed_ = make(owed, "sum of residuals");
  staged_ = make(largest, "sum of residuals");
  all = second = owed = 0;
  for (std::size_t s = 0; s < options_.sites.size(); ++s) {
    const Site& site = options_.sites[s];
    Kept& kept = kept_[s];
    const std::int64_t piece = kept.pieces[rank + 1] - kept.pieces[rank];
    kept.residual = view(residual_, sums, {site.elements}, all);
    if (two_legs && site.shards.empty()) {
      kept.second = view(second_, sums, {piece}, second);
      second += piece;
    }
    kept.owed = {kept.pieces[rank], view(owed_, sums, {piece}, owed)};
    all += site.elements;
    owed += piece;
  }
}

void CompressedSums::sum_owed() {
  LOCKSTEP_CHECK(under_way_.empty(), "residuals are added up while {} sums are under way", under_way_.size());
  for (const Kept& kept : kept_) {
    if (!kept.residual) continue;
    const std::int64_t elements = kept.residual.elements();
    const Tensor all = view(staged_, kept.residual.dtype(), {elements});
    cast({.y = all, .x = kept.residual}, stream_);
    if (kept.second) {
      const Tensor own = all.slice(0, kept.owed.begin, kept.second.elements());
      add({.y = own, .a = own, .b = kept.second}, stream_);
    }
    Communicator::Counts counts;
    for (std::size_t r = 0; r + 1 < kept.pieces.size(); ++r) counts.push_back(kept.pieces[r + 1] - kept.pieces[r]);
    ranks_.reduce_scatter(kept.owed.elements, all, {}, counts)->wait();
  }
}

// The mean over ranks of pieces that only one of them has is an equal share of each.
void CompressedSums::deal_owed() {
  LOCKSTEP_CHECK(under_way_.empty(), "residuals are dealt while {} sums are under way", under_way_.size());
  for (const Kept& kept : kept_) {
    if (!kept.residual) continue;
    fill({.y = kept.residual, .value = 0}, stream_);
    if (kept.second) fill({.y = kept.second, .value = 0}, stream_);
    cast({.y = kept.residual.slice(0, kept.owed.begin, kept.owed.elements.elements()), .x = kept.owed.elements},
         stream_);
    ranks_.all_reduce(kept.residual, {.reduction = Reduction::mean})->wait();
  }
}

void CompressedSums::start(int site, const ConstTensor& in, const Tensor& out, std::function<void()> after) {
  go_on();
  while (std::ranges::find(under_way_, site, &UnderWay::site) != under_way_.end()) finish_oldest();
  measure(site, kOfGradients, in);
  sums_[static_cast<std::size_t>(site)]->start(in, out);
  measure(site, kOfResiduals, kept_[static_cast<std::size_t>(site)].residual);
  under_way_.push_back({site, std::move(after)});
  if (!options_.overlap) settle();
}

// Padding is no gradient.
void CompressedSums::measure(int site, Measured which, const ConstTensor& all) {
  if (!error_) return;
  for (const CompressedSum::Range& range : options_.sites[static_cast<std::size_t>(site)].parameters)
    error_->add(which, all.slice(0, range.begin, range.elements()), stream_);
}

void CompressedSums::advance(UnderWay& one) {
  if (one.advanced) return;
  sums_[static_cast<std::size_t>(one.site)]->advance();
  one.advanced = true;
}

void CompressedSums::go_on() {
  for (UnderWay& one : under_way_) {
    if (!one.advanced && !sums_[static_cast<std::size_t>(one.site)]->first_done()) return;
    advance(one);
  }
}

void CompressedSums::finish_oldest() {
  UnderWay& oldest = under_way_.front();
  advance(oldest);
  sums_[static_cast<std::size_t>(oldest.site)]->finish();
  if (oldest.after) oldest.after();
  under_way_.pop_front();
}

void CompressedSums::settle(std::size_t most) {
  go_on();
  if (most == 0)
    for (UnderWay& one : under_way_) advance(one);  // their second legs are under way together
  while (under_way_.size() > most) finish_oldest();
}

}  // namespace lockstep

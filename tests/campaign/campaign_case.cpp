#include "campaign/campaign_case.h"

#include <fmt/format.h>

#include <algorithm>

#include "spec/layout/layout_toml.h"

namespace lockstep::tests {

namespace {

// The batch of 24 divides by all of them, and by what is left of them after a host or a rank is lost unless `uneven`.
constexpr std::array kLayouts = {
    "dp=2",
    "dp=3",
    "dp=4",
    "dp=4,zero=1",
    "dp=3,zero=2",
    "dp=4,zero=3",
    "tp=2",
    "dp=2,tp=2",
    "pp=2,micro=4",
    "pp=2,tp=2,micro=2",
    "cp=2",
    "dp=2,cp=2,zero=1",
    "dp=2,pp=2,micro=3",
    "cp=2,tp=2",
    "dp=2,tp=2,zero=3",
    "dp=2,cp=2,zero=3,micro=2",
    "pp=2,micro=4,schedule=zb-h1",
    "dp=6,zero=1",
    "dp=2,pp=2,tp=2,micro=2",
    "dp=2,pp=2,zero=2,micro=2",
};

bool suits(const FaultKind& kind, RanksAs as) {
  return kind.ranks_as.find(kRanksAs[static_cast<std::size_t>(as)][0]) != std::string_view::npos;
}

}  // namespace

std::uint64_t Draws::next() {  // splitmix64
  std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// The first fault's kind follows from the seed by turns, so that every kind has its share; the others are drawn.
CampaignCase draw_case(std::uint64_t seed, const std::string& only) {
  Draws draws(seed);
  CampaignCase c{.seed = seed};
  std::size_t first = seed % kFaultKinds.size();
  for (std::size_t kind = 0; kind < kFaultKinds.size(); ++kind)
    if (kFaultKinds[kind].name == only) first = kind;
  constexpr std::array kWeighted = {RanksAs::threads, RanksAs::processes, RanksAs::processes, RanksAs::mpirun,
                                    RanksAs::hosts,   RanksAs::hosts,     RanksAs::processes};
  do c.ranks_as = kWeighted[static_cast<std::size_t>(draws.below(std::ssize(kWeighted)))];
  while (!suits(kFaultKinds[first], c.ranks_as));
  if (c.ranks_as == RanksAs::hosts) c.hosts = 2 + static_cast<int>(draws.below(2));
  do {
    c.layout = kLayouts[static_cast<std::size_t>(draws.below(std::ssize(kLayouts)))];
    c.ranks = static_cast<int>(parse_layout(c.layout).ranks());
  } while (c.ranks % c.hosts != 0);
  if (c.ranks_as == RanksAs::processes || c.ranks_as == RanksAs::hosts) {
    c.shrinks = draws.below(3) == 0;
    if (c.ranks_as == RanksAs::processes && draws.below(3) == 0) c.spares = 1;
  }
  const std::int64_t count = 4 + draws.below(4);
  for (std::int64_t i = 0; i < count; ++i) {
    std::size_t kind = first;
    if (i > 0 && only.empty()) do
        kind = static_cast<std::size_t>(draws.below(std::ssize(kFaultKinds)));
      while (!suits(kFaultKinds[kind], c.ranks_as));
    c.faults.push_back({.kind = kind, .after = 2 + draws.below(i == 0 ? 30 : 45), .seed = draws.next()});
  }
  return c;
}

bool CampaignCase::has(std::string_view kind) const {
  return std::ranges::any_of(faults, [&](const PlannedFault& one) { return kFaultKinds[one.kind].name == kind; });
}

std::string CampaignCase::text() const {
  std::string all = fmt::format("case {}: {} as {}{}{}{}:", seed, layout, kRanksAs[static_cast<std::size_t>(ranks_as)],
                                hosts > 1 ? fmt::format(" on {} hosts", hosts) : "", spares > 0 ? ", with a spare" : "",
                                shrinks ? ", may shrink" : "");
  for (const PlannedFault& fault : faults) all += fmt::format(" {}", kFaultKinds[fault.kind].name);
  return all;
}

}  // namespace lockstep::tests

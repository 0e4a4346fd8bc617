#include "plan/layout_score.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/median.h"

namespace lockstep {

LayoutScore score_layouts(const std::vector<ScoredLayout>& layouts) {
  LayoutScore score;
  std::vector<double> errors;
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    const double error = std::abs(layouts[i].error());
    errors.push_back(error);
    if (error > score.worst_error) score.worst_error = error, score.worst = i;
    if (error > std::max(LayoutScore::kMostError, 2 * layouts[i].repeatability)) score.beyond.push_back(i);
  }
  score.median_error = median(errors);
  score.first.resize(layouts.size());
  std::iota(score.first.begin(), score.first.end(), std::size_t{0});
  std::ranges::stable_sort(score.first, {}, [&](std::size_t i) { return layouts[i].predicted; });
  score.first.resize(std::min<std::size_t>(3, layouts.size()));
  const auto measured = [&](std::size_t i) { return layouts[i].measured; };
  const double fastest = std::ranges::min_element(layouts, {}, &ScoredLayout::measured)->measured;
  score.first_over_fastest = measured(*std::ranges::min_element(score.first, {}, measured)) / fastest - 1;
  return score;
}

std::string score_text(const std::vector<ScoredLayout>& layouts) {
  const LayoutScore score = score_layouts(layouts);
  const ScoredLayout& worst = layouts[score.worst];
  std::string out =
      fmt::format("prediction: {} layouts, median error {:.1f}%, worst {:+.1f}% ({}, which repeats within {:.1f}%)\n",
                  layouts.size(), 100 * score.median_error, 100 * worst.error(), worst.name, 100 * worst.repeatability);
  out += fmt::format("off by more than {:.0f}% and twice their own repeatability: {}", 100 * LayoutScore::kMostError,
                     score.beyond.empty() ? "none" : "");
  for (std::size_t i = 0; i < score.beyond.size(); ++i)
    out += fmt::format("{}{}", i > 0 ? ", " : "", layouts[score.beyond[i]].name);
  out += "\nthe three predicted fastest:";
  for (std::size_t i = 0; i < score.first.size(); ++i)
    out += fmt::format("{} {}", i > 0 ? "," : "", layouts[score.first[i]].name);
  return out +
         fmt::format("; the best of them is {:.1f}% above the fastest measured\n", 100 * score.first_over_fastest);
}

}  // namespace lockstep

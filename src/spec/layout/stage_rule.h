// How the layers of a model are divided into the chunks of a pipeline.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

// Whole numbers from 0 to kMaxLayers, joined by "+"; nothing for another text.
std::optional<std::vector<std::int64_t>> parse_joined(std::string_view text);

// `stages` of a layout: "cost", "even", or the number of layers of each chunk, as in "3+5". spec/layout/stage_cut.h
// makes the division.
struct StageRule {
  enum class Form { cost, even, layers };
  Form form = Form::cost;
  std::vector<std::int64_t> layers = {};  // of each chunk; Form::layers alone

  static StageRule even() { return {.form = Form::even}; }
  static StageRule of_layers(std::vector<std::int64_t> layers) { return {Form::layers, std::move(layers)}; }

  // Nothing where the text is not one of the three; leading zeros of a number are not kept.
  static std::optional<StageRule> parse(std::string_view text);
  std::string text() const;
  static constexpr std::string_view kRemedy =
      "use \"cost\", \"even\", or the layers of each part by hand, as in \"3+5\"";

  bool operator==(const StageRule&) const = default;
};

}  // namespace lockstep

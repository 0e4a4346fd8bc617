// The words and sentence patterns of the stories (data/story_grammar.h).
//
// A value of a variable has several forms: of a person the name and the pronouns, of a thing the noun and the words
// that agree with its number.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace lockstep {

enum class StoryVariable : std::uint8_t { hero, friend_, trait, animal, home, time, thing, colour, place, treat, mood };
inline constexpr int kStoryVariables = 11;

// Each sentence has its own.
inline constexpr StoryVariable kOfOneSentence[] = {StoryVariable::place, StoryVariable::treat, StoryVariable::mood};

using StoryForms = std::array<std::string_view, 7>;
std::span<const StoryForms> story_values(StoryVariable variable);  // at most 31

// What stands in braces in a pattern.
struct StorySlot {
  std::string_view name;
  StoryVariable variable;
  std::size_t form;
};
extern const std::span<const StorySlot> kStorySlots;

// A sentence of a plot: one of these.
struct StoryPart {
  std::span<const std::string_view> patterns;
  bool begins_line = false;
};
extern const std::array<std::span<const StoryPart>, 3> kStoryPlots;

}  // namespace lockstep

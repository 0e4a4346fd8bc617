// Continuing prompts with a generator: one, or many together.
//
// A token is picked from its text's own logits with random numbers of (seed, its position), so a prompt has the answer
// that it has alone, whichever others are continued with it.
#pragma once
#include <functional>
#include <optional>

#include "train/generator.h"
#include "train/sampling.h"

namespace lockstep {

struct Continuation {
  std::int64_t max_tokens = 200;
  Sampling sampling = {};
  std::vector<std::int32_t> ends = {};  // the tokens that end a text; they are not given
};

enum class Finish { enough, end_of_text, no_positions, stopped };

// Reads the prompt (at least one token) and gives the tokens that follow, one by one, until there are enough, the text
// ends, the positions are used up, or `give` returns false. As many tokens as positions can be read, so one more than
// those can be given. Where the generator has read a beginning of the prompt and nothing else, it continues from there;
// otherwise it forgets what it has read.
Finish continue_prompt(Generator& generator, std::span<const std::int32_t> prompt, const Continuation& how,
                       const std::function<bool(std::int32_t)>& give);

// Prompts that are continued together are numbered from 0 as they come.
struct ManyPrompts {
  std::function<std::optional<std::vector<std::int32_t>>()> next;     // nothing: there are no more
  std::function<bool(std::int64_t number, std::int32_t token)> give;  // false: no more of it
  std::function<void(std::int64_t number, Finish why)> finished;      // once for each
};

// Continues as many as the generator has texts for; where one is finished, the next prompt is read into its place:
// whole runs of it by themselves, and what is left of it beside the tokens of the others.
void continue_prompts(Generator& generator, const Continuation& how, const ManyPrompts& prompts);

}  // namespace lockstep

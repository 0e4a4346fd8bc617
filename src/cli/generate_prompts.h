// Where the prompts of `lockstep generate` come from: one that was typed, those of a file, or a conversation.
//
// A conversation is written by the model's chat template (data/chat/chat_template.h), whole for each answer. Its turns
// are lines of standard input, unless the first is given.
//
// Failure: UserError, one line.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/text_model.h"

namespace lockstep {

struct PromptSettings {
  std::string folder;
  std::string prompt, tokens, file, messages, system;
  bool has_prompt = false, has_tokens = false, has_system = false, chat = false;
  std::int64_t max_tokens = 200;
  std::int64_t context = 0;  // tokens of a conversation on standard input; 0: kUsualContext
};

inline constexpr std::int64_t kUsualContext = 4096;

class Prompts {
 public:
  virtual ~Prompts() = default;
  // The tokens to continue, at least one and in the model's vocabulary; nothing: there are no more.
  virtual std::optional<std::vector<std::int32_t>> next(const std::atomic<bool>& stop) = 0;
  virtual void answered(const std::string&) {}
  std::int64_t positions() const { return positions_; }
  std::int64_t count() const { return count_; }  // that are there at once: a conversation has one

 protected:
  std::int64_t count_ = 1;
  std::int64_t positions_ = 0;  // tokens that prompts and answers need room for
};

// The source outlives it.
std::unique_ptr<Prompts> make_prompts(const PromptSettings& settings, const TextModel& source);

}  // namespace lockstep

// A line of a file of conversations as text, and which bytes of the text are answers.
//
//   {"messages": [{"role": "user", "content": "Hello!"}, {"role": "assistant", "content": "Hi."}]}
//   {"prompt": "The capital of France is", "completion": " Paris."}
//
// Messages become text by the chat template. Answers are what its {% generation %} encloses. Where the template has
// none, an answer is what a message of the assistant adds: the text of the conversation up to it, after the same
// without it and with the beginning of an answer (add_generation_prompt). Both must be how the whole text begins, or
// the template is refused: it writes a message differently once others follow.
//
// A prompt and its completion are one text, without a template; the completion is the answer.
//
// Threads: pure. Failure: UserError (bad_input_file), one line that begins with `where`.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/chat/chat_template.h"

namespace lockstep {

struct ConversationText {
  std::string text;
  std::vector<std::pair<std::size_t, std::size_t>> answers = {};  // bytes from, to; in order
  bool by_template = false;                                       // of messages
  bool enclosed = false;                                          // the template says itself what answers are
};

// What may be read again to find a line's answers, or their tokens, one by one: the square of a conversation's length.
inline constexpr std::size_t kMostPrefixBytes = std::size_t{1} << 30;

// One line of JSON. `chat` may be null: then a line with messages is refused.
ConversationText read_conversation(std::string_view line, const ChatTemplate* chat, const std::string& where);

// What messages become.
ConversationText conversation_text(const nlohmann::ordered_json& messages, const ChatTemplate& chat,
                                   const std::string& where);

}  // namespace lockstep

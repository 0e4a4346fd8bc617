// The chat template of a Hugging Face folder: messages to the text that a model of conversations was trained on.
//
//   const ChatTemplate chat = ChatTemplate::load("my-model");
//   chat.render({{"system", "Be brief."}, {"user", "Hello!"}}, AnswerBegins::yes).text
//
// It is chat_template.jinja, or "chat_template" of tokenizer_config.json (of several the one named "default"), or
// chat_template.json; its variables are messages, add_generation_prompt, and the special tokens of
// tokenizer_config.json (bos_token, eos_token, …). docs/generation.md says what of Jinja there is.
//
// The text holds its special tokens as text: it is encoded without a tokenizer's own (Specials::skip).
//
// Threads: immutable after construction. Failure: UserError (bad_input_file), one line with the file and the place.
#pragma once
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/chat/template_run.h"

namespace lockstep {

// Whether the text ends with the beginning of the assistant's next message.
enum class AnswerBegins { yes, no };

class ChatTemplate {
 public:
  // A file name begins with `prefix`: a checkpoint keeps such files as "hf-NAME". Nothing where there is no template.
  static std::optional<ChatTemplate> find(const std::filesystem::path& folder, std::string_view prefix = "");
  ChatTemplate(std::string_view source, TemplateValue::Entries tokens, std::string where);

  // A list of objects with "role" and "content", as in a file of conversations.
  RenderedTemplate render(const nlohmann::ordered_json& messages, AnswerBegins answer) const;

  // Whether it has {% generation %} around what the assistant says.
  bool encloses_answers() const { return encloses_answers_; }
  const std::string& where() const { return where_; }  // what messages call it
  // Of the template and its special tokens: the same gives the same text.
  std::uint64_t fingerprint() const { return fingerprint_; }

 private:
  std::vector<TemplateStatement> statements_;
  TemplateValue::Entries tokens_;  // special tokens, by name
  std::string where_;
  bool encloses_answers_ = false;
  std::uint64_t fingerprint_ = 0;
};

// Messages as a file has them: {"messages": […]} or the list itself. UserError (bad_input_file) naming the file.
nlohmann::ordered_json parse_messages(std::string_view json, const std::string& where);

}  // namespace lockstep

// Any line at all is either a conversation, whose answers are parts of its text in order, or a UserError of one line.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "data/chat/conversation.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lockstep;
  const auto require = [](bool claim) {
    if (!claim) std::abort();
  };
  static const ChatTemplate kEncloses(
      "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}{% generation %}{{ m.content }}|{% "
      "endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}",
      {}, "fuzz"),
      kAdds(
          "{% for m in messages %}<{{ m.role }}>{{ m.content }}|{% endfor %}{% if add_generation_prompt "
          "%}<assistant>{% "
          "endif %}",
          {}, "fuzz");
  const std::string_view line{reinterpret_cast<const char*>(data), size};
  for (const ChatTemplate* const chat : {&kEncloses, &kAdds, static_cast<const ChatTemplate*>(nullptr)}) {
    try {
      const ConversationText made = read_conversation(line, chat, "fuzz:1");
      std::size_t before = 0;
      for (const auto& [from, to] : made.answers) {
        require(before <= from && from < to && to <= made.text.size());
        before = to;
      }
    } catch (const UserError& error) {
      const std::string said = error.what();
      require(said.starts_with("fuzz:1: ") && said.find('\n') == std::string::npos && said.size() < 2000);
    }
  }
  return 0;
}

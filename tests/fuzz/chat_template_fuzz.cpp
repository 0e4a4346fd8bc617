// Any text at all is either a chat template that gives a text in bounded time, or a UserError of one line.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "data/chat/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lockstep;
  const auto require = [](bool claim) {
    if (!claim) std::abort();
  };
  static const nlohmann::ordered_json kTalk = nlohmann::ordered_json::parse(
      R"([{"role": "system", "content": " Be "}, {"role": "user", "content": "é?"}, {"role": "assistant", "content": null, "n": [1, 2.5, {}]}])");
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  const auto refused = [&](const UserError& error) {
    const std::string line = error.what();
    require(!line.empty() && line.find('\n') == std::string::npos && line.size() < 2000);
  };
  try {
    (void)parse_messages(text, "fuzz");
  } catch (const UserError& error) {
    refused(error);
  }
  try {
    const ChatTemplate chat(text, {{"bos_token", std::string("<s>")}}, "fuzz");
    const RenderedTemplate first = chat.render(kTalk, AnswerBegins::yes);
    require(chat.render(kTalk, AnswerBegins::yes).text == first.text);
    for (const auto& [from, to] : first.generated) require(from <= to && to <= first.text.size());
  } catch (const UserError& error) {
    refused(error);
  }
  return 0;
}

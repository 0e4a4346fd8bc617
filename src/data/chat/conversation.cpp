#include "data/chat/conversation.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "spec/text/text_input.h"

namespace lockstep {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kDeepestLine = 64;
// Without {% generation %} every prefix that ends with an answer is rendered: the square of a conversation's length.
constexpr std::int64_t kMostPairs = 4'000'000;
constexpr auto kRoles =
    std::to_array<std::string_view>({"system", "developer", "user", "assistant", "tool", "function", "ipython"});
constexpr const char* kMendLine = "mend the line, or take it out";
constexpr const char* kForms =
    R"(write {"messages": [{"role": "user", "content": "…"}, {"role": "assistant", "content": "…"}]} or {"prompt": "…", "completion": "…"})";
constexpr const char* kEnclose =
    "write {% generation %} and {% endgeneration %} around the assistant's text in the template";

[[noreturn]] void refuse_line(const std::string& where, const std::string& problem, const char* remedy = kMendLine) {
  throw UserError(ExitCode::bad_input_file, fmt::format("{}: {}", where, problem), remedy);
}

// RFC 8259, and no key twice in one object.
Json parse_line(std::string_view line, const std::string& where) {
  std::vector<std::set<std::string>> keys;
  std::string problem;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& value) {
    if (depth > kDeepestLine && problem.empty()) problem = fmt::format("values nest deeper than {}", kDeepestLine);
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end && !keys.empty()) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.empty() && problem.empty() &&
        !keys.back().insert(value.get<std::string>()).second)
      problem = fmt::format("has the key {} twice in one object", quote_text(value.get<std::string>()));
    if (!problem.empty()) throw TemplateError("");
    return true;
  };
  // The parser ends at a zero.
  if (const std::size_t zero = line.find('\0'); zero != line.npos)
    refuse_line(where, fmt::format("is not JSON at byte {}", zero + 1));
  try {
    return Json::parse(line, watch);
  } catch (const TemplateError&) {
    refuse_line(where, problem);
  } catch (const Json::parse_error& error) {
    refuse_line(where, fmt::format("is not JSON at byte {}", std::max<std::size_t>(1, error.byte)));
  } catch (const Json::exception&) {
    refuse_line(where, "holds a number that is too large");
  }
}

// Its content: text, parts with a type, or nothing beside calls of tools.
void check_content(const Json& message, const std::string& where, const std::string& which) {
  const auto found = message.find("content");
  const bool calls = message.contains("tool_calls") && !message["tool_calls"].empty();
  if (found == message.end() || found->is_null()) {
    if (!calls) refuse_line(where, which + R"( has no "content")");
    return;
  }
  if (found->is_string()) {
    if (found->get<std::string>().empty() && message["role"] == "assistant" && !calls)
      refuse_line(where, which + " is an answer without text");
    return;
  }
  const bool parts = found->is_array() && !found->empty() && std::ranges::all_of(*found, [](const Json& part) {
                       return part.is_object() && part.contains("type") && part["type"].is_string();
                     });
  if (!parts) refuse_line(where, which + R"( has a "content" that is no text, and no list of parts with a "type")");
}

void check_messages(const Json& messages, const std::string& where) {
  if (!messages.is_array()) refuse_line(where, R"("messages" is no list)", kForms);
  if (messages.empty()) refuse_line(where, R"("messages" is empty)");
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const Json& message = messages[i];
    const std::string which = fmt::format("message {}", i + 1);
    if (!message.is_object()) refuse_line(where, which + " is no object", kForms);
    if (!message.contains("role")) refuse_line(where, which + R"( has no "role")", kForms);
    if (!message["role"].is_string()) refuse_line(where, which + R"( has a "role" that is no text)", kForms);
    const auto role = message["role"].get<std::string>();
    if (std::ranges::find(kRoles, role) == kRoles.end())
      refuse_line(where, fmt::format("{} has the unknown role {}", which, quote_text(role)),
                  "use system, developer, user, assistant, tool, function or ipython");
    if (message.contains("weight") && message["weight"] != 1)
      refuse_line(where, which + R"( has a "weight", which is not supported)",
                  R"(take "weight" out, and what is not to be learned with it)");
    check_content(message, where, which);
  }
}

std::string text_of(const Json& object, const char* key, const std::string& where) {
  const auto found = object.find(key);
  if (found == object.end()) refuse_line(where, fmt::format("has no \"{}\"", key), kForms);
  if (found->is_array())
    refuse_line(where, fmt::format("\"{}\" is a list", key), R"(put all messages into one list, "messages")");
  if (!found->is_string()) refuse_line(where, fmt::format("\"{}\" is no text", key), kForms);
  return found->get<std::string>();
}

std::string rendered(const Json& messages, AnswerBegins answer, const ChatTemplate& chat, const std::string& where) {
  try {
    return chat.render(messages, answer).text;
  } catch (const UserError& error) {
    throw UserError(error.code(), where + ": " + error.what(), "");
  }
}

// What each message of the assistant adds to the text.
std::vector<std::pair<std::size_t, std::size_t>> added_answers(const Json& messages, const std::string& whole,
                                                               const ChatTemplate& chat, const std::string& where) {
  const std::int64_t count = std::ssize(messages);
  const auto is_answer = [](const Json& message) { return message["role"] == "assistant"; };
  const auto answers = std::ranges::count_if(messages, is_answer);
  if (answers * count > kMostPairs)
    refuse_line(where, fmt::format("{} messages are too many to find the answers of one by one", count), kEnclose);
  std::vector<std::pair<std::size_t, std::size_t>> all;
  std::size_t bytes = 0;
  Json before = Json::array();
  for (const Json& message : messages) {
    if (is_answer(message)) {
      const auto refuse_template_text = [&](const char* problem) {
        refuse_line(where,
                    fmt::format("{}: message {} is written differently {}", chat.where(), before.size(), problem),
                    kEnclose);
      };
      const std::string prompt = rendered(before, AnswerBegins::yes, chat, where);
      before.push_back(message);
      const bool last = std::ssize(before) == count;
      const std::string with = last ? std::string() : rendered(before, AnswerBegins::no, chat, where);
      const std::string& until = last ? whole : with;
      if (!until.starts_with(prompt))
        refuse_template_text("from what add_generation_prompt begins, so that its answer cannot be found");
      if (!whole.starts_with(until)) refuse_template_text("once others follow, so that its answer cannot be found");
      if (until.size() > prompt.size()) all.emplace_back(prompt.size(), until.size());
      bytes += prompt.size() + until.size();
      if (bytes > kMostPrefixBytes)
        refuse_line(where, "the conversation is too long to find its answers one by one", kEnclose);
    } else {
      before.push_back(message);
    }
  }
  return all;
}

}  // namespace

ConversationText conversation_text(const Json& messages, const ChatTemplate& chat, const std::string& where) {
  ConversationText conversation{.text = {}, .by_template = true, .enclosed = chat.encloses_answers()};
  if (!conversation.enclosed) {
    conversation.text = rendered(messages, AnswerBegins::no, chat, where);
    conversation.answers = added_answers(messages, conversation.text, chat, where);
    return conversation;
  }
  RenderedTemplate all;
  try {
    all = chat.render(messages, AnswerBegins::no);
  } catch (const UserError& error) {
    throw UserError(error.code(), where + ": " + error.what(), "");
  }
  conversation.text = std::move(all.text);
  // A block inside another is listed before it, and is of the same answer.
  std::ranges::sort(all.generated, {}, [](const auto& part) { return std::pair(part.first, ~part.second); });
  for (const auto& [from, to] : all.generated)
    if (from < to && (conversation.answers.empty() || from >= conversation.answers.back().second))
      conversation.answers.emplace_back(from, to);
  return conversation;
}

ConversationText read_conversation(std::string_view line, const ChatTemplate* chat, const std::string& where) {
  const Json object = parse_line(line, where);
  if (!object.is_object()) refuse_line(where, "is no JSON object", kForms);
  const bool messages = object.contains("messages"), pair = object.contains("prompt") || object.contains("completion");
  if (messages && pair) refuse_line(where, R"(has "messages" and a prompt or a completion)", "keep one of the two");
  if (!messages && !pair) refuse_line(where, R"(has neither "messages" nor "prompt" and "completion")", kForms);
  if (!messages) {
    ConversationText conversation{.text = text_of(object, "prompt", where)};
    const std::string completion = text_of(object, "completion", where);
    if (completion.empty()) refuse_line(where, R"("completion" is empty)");
    conversation.answers.emplace_back(conversation.text.size(), conversation.text.size() + completion.size());
    conversation.text += completion;
    return conversation;
  }
  check_messages(object["messages"], where);
  if (object.contains("tools") && !object["tools"].empty())
    refuse_line(where, R"(has "tools", which templates are not given here)",
                R"(write the tools into a message of the system, and take "tools" out)");
  if (!chat)
    refuse_line(where, "has messages, and there is no chat template",
                "name with --tokenizer a folder that has a chat_template.jinja");
  return conversation_text(object["messages"], *chat, where);
}

}  // namespace lockstep

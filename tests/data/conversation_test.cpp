// Conversations as tokens: what the assistant says is marked and nothing else, character by character, as the families'
// forms written out by hand say; templates and lines of which that cannot be said are refused.
#include "data/chat/conversation.h"

#include <gmock/gmock.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "data/byte_tokenizer.h"
#include "data/chat/conversation_encoder.h"
#include "data/temp_folder.h"
#include "data/tokenizer_documents.h"
#include "support/golden.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using OrderedJson = nlohmann::ordered_json;

struct Message {
  std::string role, content;
};
using Talk = std::vector<Message>;

OrderedJson json_of(const Talk& talk) {
  OrderedJson list = OrderedJson::array();
  for (const Message& m : talk) list.push_back({{"role", m.role}, {"content", m.content}});
  return list;
}
std::string line_of(const Talk& talk) { return OrderedJson{{"messages", json_of(talk)}}.dump(); }

std::string trimmed(const std::string& text) {
  const std::size_t from = text.find_first_not_of(" \n\t"), to = text.find_last_not_of(" \n\t");
  return from == text.npos ? "" : text.substr(from, to - from + 1);
}

// A text whose answers are between \1 and \2: the families' forms written out by hand, without a template.
using Form = std::string (*)(const Talk&);

std::string chatml(const Talk& talk) {
  std::string text;
  if (talk[0].role != "system") text += "<|im_start|>system\nYou are helpful.<|im_end|>\n";
  for (const Message& m : talk)
    text += "<|im_start|>" + m.role + "\n" +
            (m.role == "assistant" ? "\1" + m.content + "<|im_end|>\2\n" : m.content + "<|im_end|>\n");
  return text;
}
std::string headers(const Talk& talk) {
  std::string text = "<|begin_of_text|>";
  for (const Message& m : talk)
    text += "[" + m.role + "]\n\n" +
            (m.role == "assistant" ? "\1" + trimmed(m.content) + "<|eot_id|>\2" : trimmed(m.content) + "<|eot_id|>");
  return text;
}
std::string inst(const Talk& talk) {
  std::string text = "<s>";
  for (const Message& m : talk)
    text += m.role == "assistant" ? "\1 " + trimmed(m.content) + "</s>\2" : "[INST] " + trimmed(m.content) + " [/INST]";
  return text;
}
std::string turns(const Talk& talk) {
  std::string text = "<|endoftext|>";
  for (const Message& m : talk)
    text += m.role == "assistant" ? "<turn>model\n\1" + trimmed(m.content) + "<end>\n\2"
                                  : "<turn>" + m.role + "\n" + trimmed(m.content) + "<end>\n";
  return text;
}
std::string bars(const Talk& talk) {
  std::string text;
  for (const Message& m : talk)
    text += "<|" + m.role + "|>\n" +
            (m.role == "assistant" ? "\1" + m.content + "<|endoftext|>\2\n" : m.content + "<|endoftext|>\n");
  return text;
}

struct Family {
  const char* name;
  const char* tokenizer;  // in tests/golden/tokenizers
  Form form;
  bool keeps_systems;
  std::string source;
};
const std::vector<Family>& families() {
  static const std::vector<Family> all = {
      {"chatml", "qwen2", chatml, true,
       "{% for m in messages %}{% if loop.first and m.role != 'system' %}{{ '<|im_start|>system\\nYou are "
       "helpful.<|im_end|>\\n' }}{% endif %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>' + '\\n' }}{% "
       "endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"},
      {"headers", "llama3", headers, true,
       "{{ bos_token }}{% for m in messages %}{{ '[' + m.role + ']\\n\\n' + m.content | trim + '<|eot_id|>' }}{% "
       "endfor "
       "%}{% if add_generation_prompt %}{{ '[assistant]\\n\\n' }}{% endif %}"},
      {"inst", "llama2", inst, false,
       "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ '[INST] ' + m.content | trim + ' [/INST]' }}"
       "{% else %}{{ ' ' + m.content | trim + eos_token }}{% endif %}{% endfor %}"},
      {"turns", "gpt2", turns, false,
       "{{ bos_token }}{% for m in messages %}{% set role = 'model' if m.role == 'assistant' else m.role %}{{ '<turn>' "
       "+ "
       "role + '\\n' + m.content | trim + '<end>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<turn>model\\n' "
       "}}{% endif %}"},
      {"bars", "gpt2", bars, true,
       "{% for m in messages %}{{ '<|' + m.role + '|>\\n' }}{% if m.role == 'assistant' %}{% generation %}{{ m.content "
       "+ "
       "eos_token }}{% endgeneration %}{{ '\\n' }}{% else %}{{ m.content + eos_token + '\\n' }}{% endif %}{% endfor "
       "%}{% "
       "if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"},
  };
  return all;
}

std::shared_ptr<const ChatTemplate> template_of(const Family& f) {
  const std::string name = f.tokenizer;
  const char* const bos = name == "llama3" ? "<|begin_of_text|>" : name == "llama2" ? "<s>" : "<|endoftext|>";
  const char* const eos = name == "llama3" ? "<|eot_id|>" : name == "llama2" ? "</s>" : "<|endoftext|>";
  return std::make_shared<const ChatTemplate>(
      f.source, TemplateValue::Entries{{"bos_token", std::string(bos)}, {"eos_token", std::string(eos)}}, "chat.jinja");
}
std::shared_ptr<const Tokenizer> tokenizer_named(const std::string& name) {
  return std::make_shared<const Tokenizer>(Tokenizer::load(golden_tokenizer(name)));
}

std::string without_signs(std::string text) {
  std::erase_if(text, [](char c) { return c == '\1' || c == '\2'; });
  return text;
}
std::vector<std::string> between_signs(const std::string& text) {
  std::vector<std::string> all;
  for (std::size_t at = 0; (at = text.find('\1', at)) != text.npos;) {
    const std::size_t end = text.find('\2', at);
    all.push_back(text.substr(at + 1, end - at - 1));
    at = end;
  }
  return all;
}

// Of several words, some of them of letters beyond ASCII; never empty, with blanks at the sides and line ends.
Talk random_talk(std::mt19937& random, bool systems) {
  const std::vector<std::string> words = {"Hello",   " world", "\n", "wörld", " 你好", "🙂", " 12",   ".",
                                          " answer", "?",      " ",  "The",   " the",  "\n\n", " it's", "e"};
  const auto text = [&] {
    std::string made = words[random() % words.size()];
    for (std::size_t more = random() % 12; more > 0; --more) made += words[random() % words.size()];
    return trimmed(made).empty() ? made + "x" : made;
  };
  Talk talk;
  if (systems && random() % 2 == 0) talk.push_back({"system", text()});
  for (std::size_t turns = 1 + random() % 3; turns > 0; --turns) {
    talk.push_back({"user", text()});
    talk.push_back({"assistant", text()});
  }
  if (random() % 3 == 0) talk.push_back({"user", text()});
  return talk;
}

// The runs of targets as text.
std::vector<std::string> answers_of(const std::vector<std::int32_t>& ids, const std::vector<std::uint8_t>& targets,
                                    const std::function<std::string(std::span<const std::int32_t>)>& text) {
  std::vector<std::string> all;
  for (std::size_t from = 0, to; from < ids.size(); from = to) {
    for (to = from; to < ids.size() && targets[to] == targets[from];) ++to;
    if (targets[from] != 0) all.push_back(text(std::span(ids).subspan(from, to - from)));
  }
  return all;
}

TEST(Conversations, AsBytesHaveTheAnswersOfTheFamiliesFormsWrittenOut) {
  std::mt19937 random(1);
  for (const Family& f : families())
    for (int i = 0; i < 100; ++i) {
      const Talk talk = random_talk(random, f.keeps_systems);
      const std::string form = f.form(talk);
      std::vector<std::int32_t> ids;
      std::vector<std::uint8_t> targets, expected;
      ConversationEncoder encoder(nullptr, 0, template_of(f));
      EXPECT_EQ(encoder.encode(line_of(talk), "here", ids, targets).answers, std::ssize(between_signs(form)));
      bool answer = false;
      for (const char c : form) {
        if (c == '\1' || c == '\2')
          answer = c == '\1';
        else
          expected.push_back(answer ? 1 : 0);
      }
      // Bytes know no special token, so that what the template writes after one is of the answer.
      if (f.form == chatml)
        for (std::size_t at = 1; at < expected.size(); ++at)
          if (expected[at - 1] == 1 && without_signs(form)[at] == '\n' && expected[at] == 0) expected[at] = 1;
      ASSERT_EQ(ids, encode_bytes(without_signs(form))) << f.name;
      ASSERT_EQ(targets, expected) << f.name << "\n" << form;
    }
}

TEST(Conversations, AsTokensHaveTheTextsTokensAndTheAnswersCharacters) {
  std::mt19937 random(2);
  for (const Family& f : families()) {
    const auto tokenizer = tokenizer_named(f.tokenizer);
    ConversationEncoder encoder(tokenizer, 0, template_of(f));
    const auto decode = [&](std::span<const std::int32_t> ids) { return tokenizer->decode(ids, Specials::add); };
    for (int i = 0; i < 100; ++i) {
      const Talk talk = random_talk(random, f.keeps_systems);
      const std::string form = f.form(talk);
      std::vector<std::int32_t> ids;
      std::vector<std::uint8_t> targets;
      encoder.encode(line_of(talk), "here", ids, targets);
      ASSERT_EQ(ids, tokenizer->encode(without_signs(form), Specials::skip)) << f.name << "\n" << form;
      ASSERT_EQ(targets.size(), ids.size());
      std::vector<std::string> expected = between_signs(form), got = answers_of(ids, targets, decode);
      // A sentencepiece-like tokenizer writes a blank as a part of the next word, and decodes it away at the beginning.
      if (f.form == inst)
        for (auto* all : {&expected, &got})
          for (std::string& one : *all) one = trimmed(one);
      ASSERT_EQ(got, expected) << f.name << "\n" << form;
    }
  }
}

// What a model continues when it generates is what it has seen before the answer's first target.
TEST(Conversations, BeginAnAnswerWhereGenerationDoes) {
  std::mt19937 random(3);
  for (const Family& f : families()) {
    const auto tokenizer = tokenizer_named(f.tokenizer);
    const auto chat = template_of(f);
    ConversationEncoder encoder(tokenizer, 0, chat);
    int equal = 0, count = 0;
    for (int i = 0; i < 60; ++i) {
      Talk talk = random_talk(random, f.keeps_systems);
      while (talk.back().role != "assistant") talk.pop_back();
      std::vector<std::int32_t> ids;
      std::vector<std::uint8_t> targets;
      encoder.encode(line_of(talk), "here", ids, targets);
      talk.pop_back();
      const std::vector<std::int32_t> prompt =
          tokenizer->encode(chat->render(json_of(talk), AnswerBegins::yes).text, Specials::skip);
      std::size_t last = targets.size();
      while (last > 0 && targets[last - 1] == 0) --last;
      while (last > 0 && targets[last - 1] != 0) --last;
      ASSERT_LE(last, prompt.size()) << f.name << ": no target is before the first token that generation gives";
      ASSERT_TRUE(std::equal(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(last), prompt.begin())) << f.name;
      equal += last == prompt.size() ? 1 : 0;
      ++count;
    }
    // An answer that begins with a line end can be one token with the template's, as in transformers.
    EXPECT_GE(equal, count * 2 / 3) << f.name;
  }
}

// The golden templates, against a loop that renders every prefix.
TEST(Conversations, OfTheGoldenTemplatesAreMarkedOrRefusedAsEveryPrefixSays) {
  const OrderedJson cases = OrderedJson::parse(bytes_of(tests::kGolden + "chat_templates/cases.json"));
  std::map<std::string, int> marked, refused;
  for (const OrderedJson& one : cases) {
    const auto name = one["name"].get<std::string>();
    if (name.find(" of ") == name.npos || one["add_generation_prompt"].get<bool>()) continue;
    const ChatTemplate chat(one["template"].get<std::string>(),
                            {{"bos_token", std::string("<s>")}, {"eos_token", std::string("</s>")}}, "chat.jinja");
    const std::string family = name.substr(0, name.find(' '));
    const OrderedJson& messages = one["messages"];
    std::vector<std::string> expected;
    bool fine = !one.contains("refused");
    try {
      const RenderedTemplate whole = chat.render(messages, AnswerBegins::no);
      if (chat.encloses_answers()) {
        for (const auto& [from, to] : whole.generated) expected.push_back(whole.text.substr(from, to - from));
      } else {
        OrderedJson before = OrderedJson::array();
        for (const OrderedJson& message : messages) {
          if (message["role"] == "assistant") {
            const std::string prompt = chat.render(before, AnswerBegins::yes).text;
            before.push_back(message);
            const std::string with = chat.render(before, AnswerBegins::no).text;
            fine = fine && with.starts_with(prompt) && whole.text.starts_with(with);
            if (fine && with != prompt) expected.push_back(with.substr(prompt.size()));
          } else {
            before.push_back(message);
          }
        }
      }
    } catch (const UserError&) {
      fine = false;
    }
    std::vector<std::string> got;
    const std::string said = user_error([&] {
      const ConversationText text = conversation_text(messages, chat, "talks.jsonl:7");
      for (const auto& [from, to] : text.answers) got.push_back(text.text.substr(from, to - from));
    });
    EXPECT_EQ(said.empty(), fine) << name << ": " << said;
    if (fine) {
      EXPECT_EQ(got, expected) << name;
    } else {
      EXPECT_THAT(said, testing::AllOf(HasSubstr("talks.jsonl:7: "), HasSubstr("chat.jinja"), HasSubstr("; ")));
    }
    ++(fine ? marked : refused)[family];
  }
  EXPECT_EQ(marked["im"], 4);
  EXPECT_GT(refused["headers"], 0) << "it counts its messages at the end";
  EXPECT_GT(refused["macro"], 0) << "its answer begins on another line than the generation's";
  EXPECT_GT(marked["inst"] + refused["inst"], 0);
}

TEST(Conversations, PromptsAndCompletionsEndWithTheEndOfADocument) {
  for (const char* name : {"gpt2", "llama2", "llama3", "qwen2"}) {
    const auto tokenizer = tokenizer_named(name);
    const std::int32_t end = end_of_document(*tokenizer, golden_tokenizer(name));
    ConversationEncoder encoder(tokenizer, end, nullptr);
    std::vector<std::int32_t> ids;
    std::vector<std::uint8_t> targets;
    encoder.encode(R"({"id": 3, "prompt": "The capital of France is", "completion": " Paris, 你好."})", "here", ids,
                   targets);
    std::vector<std::int32_t> expected = tokenizer->encode("The capital of France is Paris, 你好.", Specials::add);
    expected.push_back(end);
    EXPECT_EQ(ids, expected) << name;
    const std::size_t prompt = tokenizer->encode("The capital of France is", Specials::add).size();
    for (std::size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(targets[i], i >= prompt ? 1 : 0) << name << ", token " << i;
  }
}

// A tokenizer that joins characters across the border: the token is of the answer.
TEST(Conversations, ATokenAcrossTheBorderIsOfTheAnswer) {
  const auto tokenizer = std::make_shared<const Tokenizer>(tokenizer_of(small_document()));
  ConversationEncoder encoder(tokenizer, *tokenizer->id_of("<end>"), nullptr);
  std::vector<std::int32_t> ids;
  std::vector<std::uint8_t> targets;
  encoder.encode(R"({"prompt": "hello he", "completion": "llo"})", "here", ids, targets);
  EXPECT_THAT(ids, ElementsAre(259, 260, 261));
  EXPECT_THAT(targets, ElementsAre(0, 1, 1));
}

TEST(Conversations, WhatIsEnclosedTwiceIsOneAnswer) {
  const ChatTemplate chat(
      "{% for m in messages %}{% generation %}a{% generation %}b{% endgeneration %}c{% endgeneration %}d{% endfor %}",
      {}, "chat.jinja");
  const ConversationText text = conversation_text(json_of({{"user", "x"}, {"assistant", "y"}}), chat, "here");
  EXPECT_EQ(text.text, "abcdabcd");
  EXPECT_THAT(text.answers,
              ElementsAre(std::pair<std::size_t, std::size_t>(0, 3), std::pair<std::size_t, std::size_t>(4, 7)));
}

TEST(Conversations, WithoutAnAnswerGiveNothing) {
  ConversationEncoder encoder(nullptr, 0, template_of(families()[0]));
  std::vector<std::int32_t> ids;
  std::vector<std::uint8_t> targets;
  EXPECT_EQ(encoder.encode(line_of({{"user", "Hello?"}}), "here", ids, targets).answers, 0);
  EXPECT_TRUE(ids.empty() && targets.empty());
}

TEST(Conversations, WhatIsWrongWithALineIsOneLineWithItsPlace) {
  const auto chat = template_of(families()[0]);
  const std::pair<const char*, const char*> wrong[] = {
      {"", "is not JSON at byte 1"},
      {"{", "is not JSON at byte 2"},
      {"hello", "is not JSON at byte 1"},
      {R"({"messages": [}])", "is not JSON at byte 15"},
      {R"({"messages": []} x)", "is not JSON at byte 18"},
      {R"([{"role": "user", "content": "x"}])", "is no JSON object"},
      {"3", "is no JSON object"},
      {"null", "is no JSON object"},
      {"{}", R"(has neither "messages" nor "prompt" and "completion")"},
      {R"({"conversations": [{"from": "human", "value": "x"}]})", R"(has neither "messages" nor)"},
      {R"({"messages": "x"})", R"("messages" is no list)"},
      {R"({"messages": {"role": "user", "content": "x"}})", R"("messages" is no list)"},
      {R"({"messages": null})", R"("messages" is no list)"},
      {R"({"messages": []})", R"("messages" is empty)"},
      {R"({"messages": ["x"]})", "message 1 is no object"},
      {R"({"messages": [{"role": "user", "content": "x"}, 4]})", "message 2 is no object"},
      {R"({"messages": [{"content": "x"}]})", R"(message 1 has no "role")"},
      {R"({"messages": [{"role": 3, "content": "x"}]})", R"(message 1 has a "role" that is no text)"},
      {R"({"messages": [{"role": "asistant", "content": "x"}]})", "message 1 has the unknown role 'asistant'"},
      {R"({"messages": [{"role": "", "content": "x"}]})", "message 1 has the unknown role ''"},
      {R"({"messages": [{"role": "user"}]})", R"(message 1 has no "content")"},
      {R"({"messages": [{"role": "user", "content": null}]})", R"(message 1 has no "content")"},
      {R"({"messages": [{"role": "user", "content": 7}]})", R"(message 1 has a "content" that is no text)"},
      {R"({"messages": [{"role": "user", "content": []}]})", R"(message 1 has a "content" that is no text)"},
      {R"({"messages": [{"role": "user", "content": ["x"]}]})", R"(message 1 has a "content" that is no text)"},
      {R"({"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": ""}]})",
       "message 2 is an answer without text"},
      {R"({"messages": [{"role": "assistant", "content": "x", "weight": 0}]})", R"(message 1 has a "weight")"},
      {R"({"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function"}]})", R"(has "tools")"},
      {R"({"messages": [{"role": "user", "content": "x"}], "prompt": "x"})", R"(has "messages" and a prompt)"},
      {R"({"prompt": "x"})", R"(has no "completion")"},
      {R"({"completion": "x"})", R"(has no "prompt")"},
      {R"({"prompt": 3, "completion": "x"})", R"("prompt" is no text)"},
      {R"({"prompt": "x", "completion": ["x"]})", R"("completion" is a list)"},
      {R"({"prompt": "x", "completion": ""})", R"("completion" is empty)"},
      {R"({"prompt": "x", "completion": "y", "prompt": "z"})", "has the key 'prompt' twice in one object"},
      {R"({"messages": [{"role": "user", "role": "assistant", "content": "x"}]})", "has the key 'role' twice"},
      {"{\"prompt\": \"x\", \"completion\": \"\xc3\"}", "is not JSON at byte 33"},
      {R"({"prompt": "x", "completion": "\ud83d"})", "is not JSON at byte"},
      {"{\"prompt\": \"x\ny\", \"completion\": \"z\"}", "is not JSON at byte"},
      {R"({"prompt": "x", "completion": "y", "n": 1e999})", ""},
  };
  for (const auto& [line, says] : wrong) {
    const std::string said = user_error([&, line = line] { read_conversation(line, chat.get(), "talks.jsonl:4"); });
    EXPECT_THAT(said, testing::AllOf(testing::StartsWith("talks.jsonl:4: "), HasSubstr(says), HasSubstr("; "))) << line;
  }
  EXPECT_THAT(user_error([&] {
                read_conversation(R"({"prompt": "x", "completion": "y"})" + std::string(1, '\0') + "more", nullptr,
                                  "a:1");
              }),
              HasSubstr("a:1: is not JSON at byte 35"));
  std::string deep = R"({"prompt": "x", "completion": "y", "more": )";
  for (int i = 0; i < 5000; ++i) deep += '[';
  EXPECT_THAT(user_error([&] { read_conversation(deep, chat.get(), "a:1"); }), HasSubstr("values nest deeper than 64"));
  const std::string talk = line_of({{"user", "x"}, {"assistant", "y"}});
  EXPECT_THAT(user_error([&] { read_conversation(talk, nullptr, "a:1"); }),
              HasSubstr("a:1: has messages, and there is no chat template; name with --tokenizer a folder"));
  EXPECT_EQ(user_error([&] { read_conversation(talk, chat.get(), "a:1"); }), "");
}

TEST(Conversations, ATemplateWhoseAnswersCannotBeFoundIsRefusedByName) {
  const auto said = [](const std::string& source) {
    const ChatTemplate chat(source, {}, "my/chat_template.jinja");
    return user_error([&] {
      read_conversation(line_of({{"user", "a"}, {"assistant", "b"}, {"user", "c"}, {"assistant", "d"}}), &chat, "t:9");
    });
  };
  const std::string each = "{% for m in messages %}{{ m.role ~ ':' ~ m.content ~ '\\n' }}{% endfor %}";
  EXPECT_EQ(said(each + "{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}"), "");
  EXPECT_THAT(said(each + "{% if add_generation_prompt %}{{ 'assistant:<think>' }}{% endif %}"),
              HasSubstr("t:9: my/chat_template.jinja: message 2 is written differently from what add_generation_prompt "
                        "begins, so that its answer cannot be found; write {% generation %} and {% endgeneration %} "
                        "around the assistant's text in the template"));
  EXPECT_THAT(said(each + "{{ messages|length }}"), HasSubstr("message 2 is written differently"));
  EXPECT_THAT(said("{% for m in messages %}{{ m.content if loop.last or m.role == 'user' else 'gone' }};{% endfor %}"),
              HasSubstr("message 2 is written differently once others follow"));
  EXPECT_THAT(
      said("{% if messages|length > 3 %}{{ raise_exception('too long') }}{% endif %}"),
      HasSubstr("t:9: my/chat_template.jinja: line 1 of the chat template: it refuses the messages: 'too long'"));
  // Work is bounded: without {% generation %} it grows with the square of a conversation.
  Talk talk;
  for (int i = 0; i < 3000; ++i) talk.push_back({i % 2 == 0 ? "user" : "assistant", "x"});
  const ChatTemplate chat(each + "{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}", {}, "t.jinja");
  EXPECT_THAT(user_error([&] { read_conversation(line_of(talk), &chat, "t:9"); }),
              HasSubstr("t:9: 3000 messages are too many to find the answers of one by one"));
}

}  // namespace
}  // namespace lockstep

// Chat templates, messages, prompts and questions that want to break `lockstep generate` and `lockstep eval`.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "support/hostile_input.h"

namespace lockstep::tests {
namespace {

// One line of a file: something, `count` times, with what is before and after it.
std::function<std::string()> around(const std::string& before, const std::string& some, std::size_t count,
                                    const std::string& after) {
  return [=] { return before + times(some, count) + after; };
}

const char* const kTemplate = "chat_template.jinja";
const HostileInput kTemplates[] = {
    {"Folder", kTemplate, text(kAFolder), "is a folder"},
    {"Pipe", kTemplate, text(kAPipe), "pipe"},
    {"Hole", kTemplate, text(kAHole), "larger than"},
    {"TooLarge", kTemplate, around("", "x", 2'000'000, ""), "larger than"},
    {"InvalidUtf8", kTemplate, text("\xff\xfe"), "not UTF-8"},
    {"InvalidUtf8InAString", kTemplate, text("{{ '\xed\xa0\x80' }}"), "not UTF-8"},
    {"Cut", kTemplate, text("{% for m in messages %}{{ m.cont"), "line 1"},
    {"OnTheHundredThousandthLine", kTemplate, around("", "\n", 99'999, "{{"), "line 100000"},
    {"DeepBrackets", kTemplate, around("{{ ", "(", 300'000, "1 }}"), "does not end"},
    {"DeepLists", kTemplate, around("{{ ", "[", 300'000, "1 }}"), "does not end"},
    {"DeepDictionaries", kTemplate, around("{{ ", "{'a':", 100'000, "1 }}"), "does not end"},
    {"DeepSubscripts", kTemplate, around("{{ a", "[a", 300'000, " }}"), "does not end"},
    {"DeepBracketsClosed", kTemplate, [] { return "{{ " + times("(", 100'000) + "1" + times(")", 100'000) + " }}"; },
     "nested deeper"},
    {"DeepListsClosed", kTemplate, [] { return "{{ " + times("[", 100'000) + times("]", 100'000) + " }}"; },
     "nested deeper"},
    {"DeepCalls", kTemplate, [] { return "{{ " + times("a(", 100'000) + times(")", 100'000) + " }}"; },
     "nested deeper"},
    {"DeepIf", kTemplate, around("", "{% if 1 %}", 50'000, ""), "nested deeper"},
    {"DeepFor", kTemplate, around("", "{% for a in [1] %}", 50'000, ""), "nested deeper"},
    {"DeepMacros", kTemplate, around("", "{% macro f() %}", 50'000, ""), "nested deeper"},
    {"DeepNot", kTemplate, around("{{ ", "not ", 200'000, "1 }}"), "nested deeper"},
    {"DeepMinus", kTemplate, around("{{ ", "-", 900'000, "1 }}"), "nested deeper"},
    {"DeepConditions", kTemplate, around("{{ ", "1 if 0 else ", 80'000, "1 }}"), "nested deeper"},
    {"DeepPowers", kTemplate, around("{{ 1", "**1", 300'000, " }}"), ""},
    {"LongSum", kTemplate, around("{{ 1", "+1", 400'000, " }}"), "steps"},
    {"LongChainOfFilters", kTemplate, around("{{ 'x'", "|trim", 150'000, " }}"), "steps"},
    {"LongChainOfFields", kTemplate, around("{{ a", ".a", 400'000, " }}"), "steps"},
    {"LongChainOfElse", kTemplate, around("{% if 0 %}", "{% elif 0 %}", 80'000, ""), ""},
    {"LongName", kTemplate, around("{{ ", "a", 900'000, ".b }}"), "undefined"},
    {"LongFilterName", kTemplate, around("{{ 1|", "a", 900'000, " }}"), "not supported"},
    {"LongTestName", kTemplate, around("{{ 1 is ", "a", 900'000, " }}"), "not supported"},
    {"LongStatementName", kTemplate, around("{% ", "a", 900'000, " %}"), "not supported"},
    {"LongFunctionName", kTemplate, around("{{ ", "a", 900'000, "() }}"), "no function"},
    {"LongMethodName", kTemplate, around("{{ 'x'.", "a", 900'000, "() }}"), "called"},
    {"LongNamespaceName", kTemplate, around("{% set x = 1 %}{% set ", "x", 1, ".y = 1 %}"), "no namespace"},
    {"LongNamespaceOfNothing", kTemplate, around("{% set ", "a", 900'000, ".y = 1 %}"), "no namespace"},
    {"LongArgumentName", kTemplate, around("{{ 'x'|trim(", "a", 900'000, "=1) }}"), "not supported"},
    {"LongOperator", kTemplate, around("{{ 1 ", "?", 900'000, " }}"), "line 1"},
    {"LongNumber", kTemplate, around("{{ ", "9", 900'000, " }}"), "line 1"},
    {"RaisesALongText", kTemplate, text("{{ raise_exception('x' * 60000000) }}"), "refuses the messages"},
    {"RaisesControlCharacters", kTemplate, text("{{ raise_exception('\\n\\x1b[2J\\x00') }}"), "refuses the messages"},
    {"LoopsWithoutEnd", kTemplate,
     text("{% for a in range(1000000) %}{% for b in range(1000000) %}{% endfor %}{% endfor %}"), "MiB of values"},
    {"LoopsOverAList", kTemplate,
     text("{% set l = range(1000000)|list %}{% for a in l %}{% for b in l %}{% endfor %}{% endfor %}"),
     "MiB of values"},
    {"LoopsOverLargeTexts", kTemplate, text("{% for a in range(900000) %}{% set t = 'x' * 60000000 %}{% endfor %}"),
     "MiB of values"},
    {"LoopsOverComparisons", kTemplate,
     text("{% set l = range(900000)|list %}{% set m = range(900000)|list %}{% for a in range(100000) %}{% if l == m "
          "%}{% endif %}{% endfor %}"),
     "MiB of values"},
    {"LoopsOverSearches", kTemplate,
     text("{% set l = range(900000)|list %}{% for a in range(100000) %}{% if -1 in l %}{% endif %}{% endfor %}"),
     "MiB of values"},
    {"LoopsOverCharacters", kTemplate,
     text("{% set t = 'x' * 900000 %}{% for a in range(1000) %}{% for c in t %}{% break %}{% endfor %}{% endfor %}"),
     "MiB of values"},
    {"RangeBeyond", kTemplate, text("{{ range(9223372036854775807) }}"), "numbers"},
    {"RangeBackwards", kTemplate, text("{{ range(9223372036854775807, -9223372036854775807, -1) }}"), "numbers"},
    {"TextDoubles", kTemplate,
     text("{% set n = namespace(t='x' * 1000) %}{% for i in range(100) %}{% set n.t = n.t + n.t %}{% endfor %}"),
     "too long"},
    {"TextDoublesByTilde", kTemplate,
     text("{% set n = namespace(t='x' * 1000) %}{% for i in range(100) %}{% set n.t = n.t ~ n.t %}{% endfor %}"),
     "too long"},
    {"TextFills", kTemplate, text("{{ 'x' * 9223372036854775807 }}"), "too long"},
    {"TextReplaced", kTemplate, text("{{ ('x' * 1000000)|replace('x', 'y' * 1000000) }}"), "too long"},
    {"TextJoined", kTemplate, text("{{ range(1000000)|join('x' * 1000000) }}"), "too long"},
    {"TextIndented", kTemplate, text("{{ ('\\n' * 900000)|indent('x' * 1000000, true, true) }}"), "too long"},
    {"TextAsJsonIndented", kTemplate, text("{{ range(900000)|list|tojson(indent=100) }}"), "MiB of values"},
    {"TextSplit", kTemplate, text("{{ ('x' * 60000000).split('x') }}"), "too long"},
    {"TextInLines", kTemplate, text("{{ ('\\n' * 60000000).splitlines() }}"), "too long"},
    {"TextInCharacters", kTemplate, text("{{ ('x' * 60000000)|list }}"), "elements"},
    {"TextReversed", kTemplate, text("{{ ('x' * 60000000)[::-1] }}"), "elements"},
    {"MapsToLargeTexts", kTemplate, text("{{ range(100000)|map('string')|map('replace', '1', 'x' * 10000000)|list }}"),
     "values"},
    {"MapsToDefaults", kTemplate, text("{{ range(1000000)|map(attribute='a', default='x' * 60000000)|list }}"),
     "values"},
    {"MapsOfMaps", kTemplate, text("{% set l = range(1000)|list %}{% set n = [l] * 1 %}"), "of a list and a number"},
    {"UniqueOfManyLists", kTemplate, text("{{ range(1000000)|unique|list }}"), "MiB of values"},
    {"ListDoubles", kTemplate,
     text("{% set n = namespace(l=[1]) %}{% for i in range(100) %}{% set n.l = n.l + n.l %}{% endfor %}"), "too long"},
    {"ListsOfLargeTexts", kTemplate,
     text("{% set n = namespace(l=[]) %}{% for i in range(1000) %}{% set n.l = n.l + ['x' * 10000000] %}{% endfor %}"),
     "MiB of values"},
    {"ListInItself", kTemplate,
     text("{% set n = namespace(l=[]) %}{% for i in range(300000) %}{% set n.l = [n.l] %}{% endfor %}{{ n.l }}"),
     "deep"},
    {"ListOfItselfTwice", kTemplate,
     text("{% set n = namespace(l=[1]) %}{% for i in range(60) %}{% set n.l = [n.l, n.l] %}{% endfor %}{{ n.l }}"),
     "MiB of values"},
    {"DictionaryOfItselfTwice", kTemplate,
     text("{% set n = namespace(d={}) %}{% for i in range(60) %}{% set n.d = {'a': n.d, 'b': n.d} %}{% endfor %}{{ "
          "n.d|tojson }}"),
     "MiB of values"},
    {"ComparesWhatDoubles", kTemplate,
     text("{% set n = namespace(l=[1], m=[1]) %}{% for i in range(60) %}{% set n.l = [n.l, n.l] %}{% set n.m = [n.m, "
          "n.m] %}{% endfor %}{{ n.l == n.m }}"),
     "MiB of values"},
    {"DictionaryOfManyKeys", kTemplate,
     [] {
       std::string all = "{{ {";
       for (int i = 0; i < 70'000; ++i) all += "'" + std::to_string(i) + "':1,";
       return all + "} }}";
     },
     "MiB of values"},
    {"NamespaceInItself", kTemplate, text("{% set n = namespace() %}{% set n.n = n %}{{ n }}"), "cannot be printed"},
    {"ManyNamespaces", kTemplate,
     text("{% for i in range(900000) %}{% set n = namespace(t='x' * 10000) %}{% endfor %}"), "MiB of values"},
    {"ManyMacros", kTemplate, text("{% for i in range(2000000) %}{% macro f() %}{% endmacro %}{% endfor %}"),
     "numbers"},
    {"MacroCallsItself", kTemplate, text("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"), "deep"},
    {"MacroCallsItselfTwice", kTemplate,
     text("{% macro f(n) %}{% if n > 0 %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}"), "steps"},
    {"MacrosCallEachOther", kTemplate,
     text("{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{{ f() }}{% endmacro %}{{ f() }}"), "deep"},
    {"MacroDefaultsCallIt", kTemplate, text("{% macro f(a=f()) %}{% endmacro %}{{ f() }}"), "deep"},
    {"NumberOverflows", kTemplate, text("{{ 9223372036854775807 * 2 }}"), "too large"},
    {"NumberDividesByZero", kTemplate, text("{{ 1 // 0 }}"), "division by zero"},
    {"NumberDividesTheLeast", kTemplate, text("{{ (-9223372036854775807 - 1) // -1 }}"), "too large"},
    {"PowerOverflows", kTemplate, text("{{ 10 ** 400 }}"), "too large"},
    {"RendersNothing", kTemplate, text("{{ 1/0 }}"), "division by zero"},
    {"UnknownFilter", kTemplate, text("{{ messages|frobnicate }}"), "not supported"},
    {"ReadsFiles", kTemplate, text("{% include '/etc/passwd' %}"), "not supported"},
    {"RunsCode", kTemplate, text("{{ ''.__class__.__mro__[1].__subclasses__() }}"), "undefined"},
    {"RendersTooMuch", kTemplate, text("{% for i in range(100000) %}{{ 'x' * 10000 }}{% endfor %}"), "longer than"},
    {"ConfigTemplatesOfNumbers", "tokenizer_config.json", text(R"({"chat_template": [1, 2]})"), "chat_template"},
    {"ConfigTemplateDeep", "tokenizer_config.json", around(R"({"chat_template": )", "[", 1'000'000, ""),
     "nested deeper"},
    {"ConfigTokenIsAList", "tokenizer_config.json", text(R"({"bos_token": ["<s>"], "chat_template": "x"})"),
     "bos_token"},
    {"EndsOfNumbers", "generation_config.json", text(R"({"eos_token_id": [1, -1]})"), "eos_token_id"},
    {"EndsDeep", "generation_config.json", around(R"({"eos_token_id": )", "[", 500'000, ""), "nested deeper"},
};
static_assert(std::size(kTemplates) >= 90);

const char* const kMessages = "talk.json";
const char* const kTurn = R"({"role": "user", "content": "x"})";
const HostileInput kTalks[] = {
    {"Empty", kMessages, text(""), "not valid JSON"},
    {"Folder", kMessages, text(kAFolder), "is a folder"},
    {"Pipe", kMessages, text(kAPipe), "pipe"},
    {"Hole", kMessages, text(kAHole), "larger than"},
    {"Missing", kMessages, text(kNoFile), "cannot open"},
    {"TooLarge", kMessages, around("[\"", "x", 20'000'000, "\"]"), "is larger than"},
    {"Deep", kMessages, around("", "[", 10'000'000, ""), "nested deeper"},
    {"DeepObjects", kMessages, around("", "{\"a\":", 2'000'000, ""), "nested deeper"},
    {"DeepContent", kMessages,
     [] { return R"([{"role": "user", "content": )" + times("[", 70) + times("]", 70) + "}]"; }, "nested deeper"},
    {"MillionsOfValues", kMessages, around(R"([{"role": "user", "content": [)", "0,", 3'000'000, "0]}]"), "values"},
    {"MillionsOfMessages", kMessages, around("[", "{},", 2'000'000, "{}]"), "values"},
    {"AMillionKeys", kMessages,
     [] {
       std::string all = R"([{"role": "user")";
       for (int i = 0; i < 900'000; ++i) all += ",\"" + std::to_string(i) + "\":0";
       return all + "}]";
     },
     "keys"},
    {"RoleTwice", kMessages, text(R"([{"role": "user", "role": "system"}])"), "twice"},
    {"RoleOfNumbers", kMessages, text(R"([{"role": 1}])"), "message 1 has no \"role\""},
    {"RoleMissingInTheLast", kMessages, around("[", std::string(kTurn) + ",", 50'000, "{}]"), "message 50001"},
    {"HugeNumber", kMessages, text(R"([{"role": "user", "content": 1e999}])"), "number"},
    {"HalfASurrogate", kMessages, text(R"([{"role": "user", "content": "\ud800"}])"), "not valid JSON"},
    {"InvalidUtf8", kMessages, text("[{\"role\": \"user\", \"content\": \"\xff\"}]"), "not valid JSON"},
    {"ControlCharacter", kMessages, text("[{\"role\": \"user\", \"content\": \"\x01\"}]"), "not valid JSON"},
    {"ZeroAtTheEnd", kMessages, text(std::string("[") + kTurn + "]" + std::string(3, '\0')), "not valid JSON"},
    {"MessagesOfMessages", kMessages, text(R"({"messages": {"messages": []}})"), "no list"},
    {"NoMessage", kMessages, text("[]"), "no message"},
    {"TooManyTokens", kMessages, around(R"([{"role": "user", "content": ")", "x", 1'000'000, "\"}]"), "positions", 2},
};
static_assert(std::size(kTalks) >= 23);

const char* const kPrompts = "prompts.jsonl";
const HostileInput kPromptFiles[] = {
    {"Empty", kPrompts, text(""), "no prompt"},
    {"OnlyNewlines", kPrompts, around("", "\n", 1'000'000, ""), "no prompt"},
    {"Folder", kPrompts, text(kAFolder), "is a folder"},
    {"Pipe", kPrompts, text(kAPipe), "pipe"},
    {"Hole", kPrompts, text(kAHole), "larger than"},
    {"Deep", kPrompts, around("", "[", 10'000'000, "\n"), "line 1 is nested deeper"},
    {"DeepOnTheSecondLine", kPrompts, around("{\"prompt\":\"a\"}\n", "{\"a\":", 1'000'000, ""),
     "line 2 is nested deeper"},
    {"MillionsOfValues", kPrompts, around("{\"prompt\":[", "0,", 3'000'000, "0]}"), "values"},
    {"AMillionKeys", kPrompts,
     [] {
       std::string all = R"({"prompt":"a")";
       for (int i = 0; i < 1'000'000; ++i) all += ",\"" + std::to_string(i) + "\":0";
       return all + "}";
     },
     "keys"},
    {"PromptTwice", kPrompts, text(R"({"prompt":"a","prompt":"b"})"), "twice"},
    {"PromptOfNumbers", kPrompts, text("{\"prompt\":\"a\"}\n{\"prompt\":7}\n"), "line 2"},
    {"NoKey", kPrompts, text("{}"), "line 1"},
    {"NoJson", kPrompts, text("hello\n"), "line 1"},
    {"ByteOrderMark", kPrompts, text("{\"prompt\":\"a\"}\n\xEF\xBB\xBF{}"), "line 2"},
    {"HalfASurrogate", kPrompts, text(R"({"prompt":"\ud800"})"), "line 1"},
    {"Zeros", kPrompts, text(std::string(100, '\0')), "line 1"},
    {"MessagesWithoutRole", kPrompts, text(R"({"messages":[{"content":"a"}]})"), "line 1"},
    {"TooManyTokens", kPrompts, around("{\"prompt\":\"", "x", 1'000'000, "\"}"), "positions", 2},
};
static_assert(std::size(kPromptFiles) >= 18);

const char* const kQuestions = "questions.jsonl";
const HostileInput kChoices[] = {
    {"Empty", kQuestions, text(""), "no question"},
    {"Missing", kQuestions, text(kNoFile), "no such file"},
    {"Folder", kQuestions, text(kAFolder), "no file in it"},
    {"Pipe", kQuestions, text(kAPipe), "not a regular file"},
    {"Deep", kQuestions, around("", "[", 10'000'000, "\n"), ":1: is nested deeper"},
    {"MillionsOfValues", kQuestions, around("{\"choices\":[", "0,", 3'000'000, "0]}"), "values"},
    {"ContextTwice", kQuestions, text(R"({"context":"a","context":"b","choices":["c","d"],"answer":0})"), "twice"},
    {"ContextOfNumbers", kQuestions, text(R"({"context":7,"choices":["c","d"],"answer":0})"), "context"},
    {"ChoicesAsText", kQuestions, text(R"({"context":"a","choices":"cd","answer":0})"), "choices"},
    {"ChoicesOfNumbers", kQuestions, text(R"({"context":"a","choices":[1,2],"answer":0})"), "choices"},
    {"ChoiceIsEmpty", kQuestions, text(R"({"context":"a","choices":["",""],"answer":0})"), "choices"},
    {"AnswerIsNegative", kQuestions, text(R"({"context":"a","choices":["c","d"],"answer":-1})"), "answer"},
    {"AnswerOf64Bits", kQuestions, text(R"({"context":"a","choices":["c","d"],"answer":18446744073709551615})"),
     "answer"},
    {"AnswerHasAFraction", kQuestions, text(R"({"context":"a","choices":["c","d"],"answer":0.5})"), "answer"},
    {"AnswerIsText", kQuestions, text(R"({"context":"a","choices":["c","d"],"answer":"0"})"), "answer"},
    {"HugeNumber", kQuestions, text(R"({"context":"a","choices":["c","d"],"answer":1e999})"), "number"},
    {"InvalidUtf8", kQuestions, text("{\"context\":\"\xff\"}"), "not valid JSON"},
    {"ZeroAfterIt", kQuestions, text(R"({"context":"a","choices":["c","d"],"answer":0})" + std::string(1, '\0')),
     "not valid JSON"},
    {"SecondLine", kQuestions,
     text(R"({"context":"a","choices":["c","d"],"answer":0})"
          "\n[]\n"),
     ":2:"},
};
static_assert(std::size(kChoices) >= 19);

const HostileInput kConfigs[] = {
    {"ManyObjects", "config.json", around("{\"a\":[", "{},", 300'000, "{}]}"), "model_type"},
    {"ManyValues", "config.json", around("{\"a\":[", "0,", 1'000'000, "0]}"), "larger than"},
    {"Deep", "config.json", around("{\"a\":", "[", 900'000, ""), "nested deeper"},
    {"DeepAndClosed", "config.json", [] { return "{\"a\":" + times("[", 500) + times("]", 500) + "}"; },
     "nested deeper"},
    {"KeyTwiceInside", "config.json", text(R"({"model_type": "llama", "a": {"b": 1, "b": 2}})"), "appears twice"},
    {"ZeroAfterIt", "config.json", text(std::string("{}\0", 3)), "not valid JSON"},
    {"Hole", "config.json", text(kAHole), "config.json"},
    {"Pipe", "config.json", text(kAPipe), "config.json"},
};
static_assert(std::size(kConfigs) >= 8);

// A folder with a model of bytes that has 64 positions, as `lockstep export` writes it; made once.
std::string model() {
  static const TemporaryFolder folder;
  const std::string made = folder / "hf";
  if (std::filesystem::exists(made)) return made;
  std::ofstream(folder / "text.txt") << times("A line of text that is long enough to train on.\n", 20);
  std::vector<std::string> words = {"train", "--out", folder / "run"};
  for (const char* set :
       {"model.family=llama", "model.vocabulary=257", "model.layers=1", "model.width=32", "model.heads=4",
        "model.kv_heads=2", "model.ffn_width=64", "model.max_positions=64", "data.text=text.txt", "data.seq=16",
        "train.steps=1", "train.global_batch=2", "train.save_every=1", "optim.warmup=0", "run.threads=1"})
    words.insert(words.end(), {"--set", set});
  const Outcome trained = run_program(words, folder.path());
  EXPECT_EQ(trained.code, 0) << trained.err;
  const Outcome exported = run_program({"export", folder / "run", "--out", made});
  EXPECT_EQ(exported.code, 0) << exported.err;
  return made;
}

// The model's files beside the case's own.
class ModelFolder : public HostileFolder {
 public:
  explicit ModelFolder(const HostileInput& input) : HostileFolder(input) {
    for (const auto& file : std::filesystem::directory_iterator(model()))
      if (file.path().filename() != input.file)
        std::filesystem::create_symlink(file.path(), *this / file.path().filename().string());
    if (input.file != kTemplate) write(kTemplate, "{% for m in messages %}{{ m.role + m.content }}{% endfor %}");
  }
};

class HostileTemplates : public testing::TestWithParam<HostileInput> {};
class HostileMessages : public testing::TestWithParam<HostileInput> {};
class HostilePrompts : public testing::TestWithParam<HostileInput> {};
class HostileConfigs : public testing::TestWithParam<HostileInput> {};
class HostileQuestions : public testing::TestWithParam<HostileInput> {};

TEST_P(HostileTemplates, AreRefusedInOneLine) {
  const ModelFolder folder(GetParam());
  if (GetParam().file == "tokenizer_config.json") std::filesystem::remove(folder / kTemplate);
  folder.expect_refused({"generate", ".", "--chat", "--prompt", "a", "--max-tokens", "1"});
}
INSTANTIATE_TEST_SUITE_P(Files, HostileTemplates, testing::ValuesIn(kTemplates), kNameOfInput);

TEST_P(HostileMessages, AreRefusedInOneLine) {
  const ModelFolder folder(GetParam());
  folder.expect_refused({"generate", ".", "--messages", kMessages, "--max-tokens", "1"});
}
INSTANTIATE_TEST_SUITE_P(Files, HostileMessages, testing::ValuesIn(kTalks), kNameOfInput);

TEST_P(HostilePrompts, AreRefusedInOneLine) {
  const ModelFolder folder(GetParam());
  folder.expect_refused({"generate", ".", "--prompts", kPrompts, "--max-tokens", "1"});
}
INSTANTIATE_TEST_SUITE_P(Files, HostilePrompts, testing::ValuesIn(kPromptFiles), kNameOfInput);

TEST_P(HostileConfigs, AreRefusedInOneLine) {
  const ModelFolder folder(GetParam());
  folder.expect_refused({"generate", ".", "--prompt", "a", "--max-tokens", "1"});
}
INSTANTIATE_TEST_SUITE_P(Files, HostileConfigs, testing::ValuesIn(kConfigs), kNameOfInput);

TEST_P(HostileQuestions, AreRefusedInOneLine) {
  const ModelFolder folder(GetParam());
  folder.expect_refused({"eval", ".", kQuestions, "--choices", "--threads", "1"});
}
INSTANTIATE_TEST_SUITE_P(Files, HostileQuestions, testing::ValuesIn(kChoices), kNameOfInput);

}  // namespace
}  // namespace lockstep::tests

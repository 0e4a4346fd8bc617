// Little English stories from a seed, and the check that a text is made of such sentences.
//
// A story has a beginning (who, and where they live), a middle (one of three plots: something is lost, found, or made
// as a present) and an end, a line each. It is written by replacing the slots of sentence patterns: a slot names a
// variable of the story (the hero, the friend, the thing, …) and the form in which it stands there. So pronouns agree
// with persons in gender, verbs with things in number, articles with the words after them:
//
//   Long ago lived a brave mouse named Mia. Mia and Clara lived in a garden.
//   One morning she lost her silver boots. "My boots are gone!" said Mia. She looked near the pond, but they were not
//   there. But Clara saw them on the hill.
//   They ate warm soup together.
//
// Choices are integer arithmetic on Philox words (base/philox.h): story `index` of a seed is the same text on every
// machine. The check runs the patterns backwards: it keeps, of each variable, the values that the text so far allows.
//
// Threads: the functions are pure.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// One story: sentences with blanks between them, the three parts on lines of their own, no line end after the last.
std::string write_story(std::uint64_t seed, std::uint64_t index);

// The text of the built-in example: stories of one seed, each of fewer than kStoryWindow bytes, so that with its end it
// fills one sample of the example's data.seq: a model sees every story from its beginning. The same in every program of
// this version.
inline constexpr std::size_t kStoryWindow = 256;
std::vector<std::string> example_stories();

// Whether this is one sentence of the grammar, by itself: a pronoun without its person may be any.
bool is_story_sentence(std::string_view sentence);
// Whether this is a whole story: all its parts in order, and every sentence agrees with those before.
bool is_story(std::string_view text);

// A text's sentences: each ends with '.', '!' or '?', and a quotation mark after it, before the end of the line, or
// before a blank that no small letter follows. What comes after the last of them, if anything, is unfinished.
struct SentenceList {
  std::vector<std::string_view> sentences;  // within the text
  std::string_view unfinished;
};
SentenceList split_sentences(std::string_view text);

// How much of a text is in the grammar. Stories are set apart by empty lines; an unfinished sentence is not counted,
// but leaves its story unfinished too.
struct StoryCount {
  std::int64_t sentences = 0, accepted = 0;
  std::int64_t stories = 0, whole = 0;
  std::string first_refused = {};  // a sentence that is not in it
  double share() const { return static_cast<double>(accepted) / static_cast<double>(sentences); }
};
StoryCount count_stories(std::string_view text);

}  // namespace lockstep

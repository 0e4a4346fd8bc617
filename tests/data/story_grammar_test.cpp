#include "data/story_grammar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <span>

#include "base/checksum.h"
#include "data/text_source.h"

namespace lockstep {
namespace {

std::string joined(const std::vector<std::string>& stories) {
  std::string text;
  for (const std::string& story : stories) text += story + "\n\n";
  return text;
}

TEST(StoryGrammar, TheSameSeedTellsTheSameStoriesOnEveryMachine) {
  const std::vector<std::string> stories = example_stories();
  EXPECT_EQ(stories, example_stories());
  EXPECT_EQ(write_story(4, 7), write_story(4, 7));
  EXPECT_NE(write_story(4, 7), write_story(4, 8));
  EXPECT_NE(write_story(4, 7), write_story(5, 7));
  EXPECT_EQ(stories[1],
            "Once there was a brave frog called Ben. His best friend was Nora.\n"
            "One day Ben missed his blue boots. \"Where are my boots?\" asked Ben. He could not see them behind the "
            "barn. Then Nora found them in the forest.\n"
            "They were best friends.");
  const std::string text = joined(stories);
  EXPECT_EQ(checksum(std::as_bytes(std::span(text))), 3603379034297465311ull);
}

TEST(StoryGrammar, TheExampleIsAFewHundredKilobytesOfDifferentStories) {
  const std::vector<std::string> stories = example_stories();
  const std::size_t bytes = joined(stories).size();
  EXPECT_GT(bytes, 300'000u);
  EXPECT_LT(bytes, 600'000u);
  EXPECT_EQ(std::set(stories.begin(), stories.end()).size(), stories.size());
}

TEST(StoryGrammar, AcceptsEverySentenceAndStoryThatItWrites) {
  for (std::uint64_t i = 0; i < 500; ++i) {
    const std::string story = write_story(3, i);
    EXPECT_TRUE(is_story(story)) << story;
    const SentenceList list = split_sentences(story);
    EXPECT_EQ(list.sentences.size(), 7u) << story;
    EXPECT_EQ(list.unfinished, "") << story;
    EXPECT_EQ(std::ranges::count(story, '\n'), 2) << story;
    for (const std::string_view sentence : list.sentences) EXPECT_TRUE(is_story_sentence(sentence)) << sentence;
  }
}

TEST(StoryGrammar, RefusesSentencesThatDoNotAgree) {
  const std::pair<const char*, const char*> kRightAndWrong[] = {
      {"Once there was an old bear called Leo.", "Once there was a old bear called Leo."},
      {"\"Where are my boots?\" asked Mia.", "\"Where is my boots?\" asked Mia."},
      {"One day Ben missed his red hat.", "One day Ben missed her red hat."},
      {"One night she lost her red hat.", "One night she lost his red hat."},
      {"One day he found some red bells near the pond.", "One day he found a red bells near the pond."},
      {"\"Whose hat is this?\" asked Ben.", "\"Whose hat is these?\" asked Ben."},
      {"Nora was glad, for she loved it.", "Nora was glad, for he loved it."},
      {"So Finn took it and thanked her.", "So Finn took it and thanked she."},
      {"He looked on the hill, but it was not there.", "He looked on the hill, but it were not there."},
      {"They ate warm soup together.", "They ate warm soup togethe."},
      {"And Mia was glad.", "and Mia was glad."},
      {"And Mia was glad.", "And Mia was glad"},
      {"And Mia was glad.", "And Mia was glad. "},
      {"And Mia was glad.", ""},
  };
  for (const auto& [right, wrong] : kRightAndWrong) {
    EXPECT_TRUE(is_story_sentence(right)) << right;
    EXPECT_FALSE(is_story_sentence(wrong)) << wrong;
  }
}

TEST(StoryGrammar, AStoryAgreesWithItselfFromBeginningToEnd) {
  const std::string begin = "Ivy was a brave fox. Ivy and Hugo lived in a cave.\nOne day she lost her red kite. ";
  const std::string middle = "\"My kite is gone!\" said Ivy. She looked near the pond, but it was not there. ";
  const std::string end = "Then Hugo found it on the hill.\nThey ate berry pie together.";
  EXPECT_TRUE(is_story(begin + middle + end));
  EXPECT_FALSE(is_story(begin + end));  // nobody asks or looks
  EXPECT_FALSE(is_story(begin + middle));
  EXPECT_FALSE(is_story(middle + end));
  EXPECT_FALSE(is_story(begin + middle + end + " And"));
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string story = begin + middle + end;
    story.replace(story.find(from), from.size(), to);
    return story;
  };
  EXPECT_TRUE(is_story(with("near the pond", "in the garden")));
  EXPECT_FALSE(is_story(with("She looked", "He looked")));           // who is he?
  EXPECT_FALSE(is_story(with("said Ivy", "said Ruby")));             // who is Ruby?
  EXPECT_FALSE(is_story(with("Hugo found it", "Hugo found them")));  // it was one kite
  EXPECT_FALSE(is_story(with("My kite", "My ball")));
}

TEST(StoryGrammar, SentencesEndAtTheirMarks) {
  const std::string text = "\"Where is my hat?\" asked Tom. Then Nora said, \"It is mine!\" Look!\nAnd so";
  const SentenceList list = split_sentences(text);
  const std::vector<std::string_view> expected = {"\"Where is my hat?\" asked Tom.", "Then Nora said, \"It is mine!\"",
                                                  "Look!"};
  EXPECT_EQ(list.sentences, expected);
  EXPECT_EQ(list.unfinished, "And so");
  EXPECT_TRUE(split_sentences("").sentences.empty());
  EXPECT_TRUE(split_sentences(" \n ").sentences.empty());
  EXPECT_EQ(split_sentences(" \n ").unfinished, "");
}

TEST(StoryGrammar, CountsWhatIsInTheGrammar) {
  const std::string text =
      write_story(5, 0) + "\n\nAnd Mia was glad. Mia were glad.\n\n\n" + write_story(5, 1).substr(0, 130) + "\n";
  const StoryCount count = count_stories(text);
  EXPECT_EQ(count.stories, 3);
  EXPECT_EQ(count.whole, 1);
  EXPECT_EQ(count.accepted, count.sentences - 1);
  EXPECT_EQ(count.sentences, std::ssize(split_sentences(write_story(5, 0)).sentences) + 2 +
                                 std::ssize(split_sentences(write_story(5, 1).substr(0, 130)).sentences));
  EXPECT_EQ(count.first_refused, "Mia were glad.");
  EXPECT_EQ(count_stories(" \n\n").sentences, 0);
}

// Each story is a document that fills one sample, so that a model learns where one begins and ends.
TEST(StoryGrammar, StoriesFillTheSamplesOfTheExample) {
  for (const std::string& story : example_stories()) EXPECT_LT(story.size(), kStoryWindow);
  const std::vector<std::string> stories = {"One.", "Thr", "Fourteen"};
  const auto source = TextSource::of_documents(stories, 4);
  EXPECT_EQ(source->documents(), 3);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(source->tokens()));
  source->read(0, tokens);
  EXPECT_EQ(tokens, (std::vector<std::int32_t>{256, 'O', 'n', 'e', '.', 256, 256, 256, 256, 'T', 'h', 'r', 256,
                                               'F', 'o', 'u', 'r', 't', 'e', 'e', 'n', 256, 256, 256, 256}));
  EXPECT_EQ(source->bytes(), 2 * source->tokens());
}

}  // namespace
}  // namespace lockstep

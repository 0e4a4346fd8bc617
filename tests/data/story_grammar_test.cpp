#include "data/story_grammar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <span>

#include "base/checksum.h"
#include "data/text_source.h"

namespace lockstep {
namespace {

std::string all_of(const std::vector<std::string>& stories) {
  std::string text;
  for (const std::string& story : stories) text += story + "\n\n";
  return text;
}

TEST(StoryGrammar, TheSameSeedTellsTheSameStoriesOnEveryMachine) {
  const std::vector<std::string> stories = example_stories();
  EXPECT_EQ(stories, example_stories());
  EXPECT_EQ(write_story(1, 7), stories[7]);
  EXPECT_NE(write_story(2, 7), stories[7]);
  EXPECT_EQ(stories[1],
            "Long ago there lived a kind bear called Leo. Leo and his friend Finn lived in a quiet village.\n"
            "One rainy afternoon he lost his green ball. \"My ball is gone!\" said Leo. He went to look on the hill, "
            "but could not see it. \"I will help you,\" said Finn. At last they found it under the bridge.\n"
            "After that Leo and Finn did everything together.");
  const std::string text = all_of(stories);
  EXPECT_EQ(checksum(std::as_bytes(std::span(text))), 17068719585200851215ull);
}

TEST(StoryGrammar, TheExampleIsAFewHundredKilobytesOfDifferentStories) {
  const std::vector<std::string> stories = example_stories();
  const std::size_t bytes = all_of(stories).size();
  EXPECT_GT(bytes, 300'000u);
  EXPECT_LT(bytes, 600'000u);
  EXPECT_EQ(std::set(stories.begin(), stories.end()).size(), stories.size());
}

TEST(StoryGrammar, AcceptsEverySentenceAndStoryThatItWrites) {
  for (std::uint64_t i = 0; i < 500; ++i) {
    const std::string story = write_story(3, i);
    EXPECT_TRUE(is_story(story)) << story;
    const SentenceList list = split_sentences(story);
    EXPECT_GE(list.sentences.size(), 8u) << story;
    EXPECT_EQ(list.unfinished, "") << story;
    EXPECT_EQ(std::ranges::count(story, '\n'), 2) << story;
    for (const std::string_view sentence : list.sentences) EXPECT_TRUE(is_story_sentence(sentence)) << sentence;
  }
}

TEST(StoryGrammar, RefusesSentencesThatDoNotAgree) {
  const std::pair<const char*, const char*> kRightAndWrong[] = {
      {"Once upon a time there was an old bear named Leo.", "Once upon a time there was a old bear named Leo."},
      {"\"Where are my boots?\" asked Mia.", "\"Where is my boots?\" asked Mia."},
      {"Mia and her friend Finn lived in a quiet village.", "Mia and his friend Finn lived in a quiet village."},
      {"One day he found some red bells near the pond.", "One day he found a red bells near the pond."},
      {"\"Whose hat is this?\" asked Ben.", "\"Whose hat is these?\" asked Ben."},
      {"One day Ben could not find his red hat.", "One day Ben could not find her red hat."},
      {"Nora liked it so much that she danced on the hill.", "Nora liked it so much that he danced on the hill."},
      {"Then Finn came to help her.", "Then Finn came to help she."},
      {"He looked on the hill, but it was not there.", "He looked on the hill, but it were not there."},
      {"They ate warm soup together and went to sleep.", "They ate warm soup together and went to slee."},
      {"And Mia was glad for the rest of the day.", "and Mia was glad for the rest of the day."},
      {"And Mia was glad for the rest of the day.", "And Mia was glad for the rest of the day"},
      {"And Mia was glad for the rest of the day.", "And Mia was glad for the rest of the day. "},
      {"And Mia was glad for the rest of the day.", ""},
  };
  for (const auto& [right, wrong] : kRightAndWrong) {
    EXPECT_TRUE(is_story_sentence(right)) << right;
    EXPECT_FALSE(is_story_sentence(wrong)) << wrong;
  }
}

TEST(StoryGrammar, AStoryAgreesWithItselfFromBeginningToEnd) {
  const std::string begin =
      "Ivy was a brave fox. She lived in a cave on the hill with her friend Hugo.\nOne day she lost her red kite. ";
  const std::string middle = "\"My kite is gone!\" said Ivy. She looked near the pond, but it was not there. ";
  const std::string end =
      "Then Hugo came to help her. At last they found it on the hill.\nThey ate berry pie together "
      "and went to sleep.";
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
  EXPECT_FALSE(is_story(with("said Ivy", "said Anna")));             // who is Anna?
  EXPECT_FALSE(is_story(with("they found it", "they found them")));  // it was one kite
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
  const std::string text = write_story(5, 0) + "\n\nAnd Mia was glad for the rest of the day. Mia were glad.\n\n\n" +
                           write_story(5, 1).substr(0, 130) + "\n";
  const StoryCount count = count_stories(text);
  EXPECT_EQ(count.stories, 3);
  EXPECT_EQ(count.whole, 1);
  EXPECT_EQ(count.accepted, count.sentences - 1);
  EXPECT_EQ(count.sentences, std::ssize(split_sentences(write_story(5, 0)).sentences) + 2 +
                                 std::ssize(split_sentences(write_story(5, 1).substr(0, 130)).sentences));
  EXPECT_EQ(count.first_refused, "Mia were glad.");
  EXPECT_EQ(count_stories(" \n\n").sentences, 0);
}

// Each story is a document, so that a model learns where one ends.
TEST(StoryGrammar, StoriesAreDocumentsOfTheExample) {
  const std::vector<std::string> stories = {"One.", "Two."};
  const auto source = TextSource::of_documents(stories);
  EXPECT_EQ(source->documents(), 2);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(source->tokens()));
  source->read(0, tokens);
  EXPECT_EQ(tokens, (std::vector<std::int32_t>{'O', 'n', 'e', '.', 256, 'T', 'w', 'o', '.', 256}));
  EXPECT_EQ(source->bytes(), 20);
}

}  // namespace
}  // namespace lockstep

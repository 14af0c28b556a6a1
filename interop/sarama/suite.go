// Package suite pins the module whose tests run.
package suite

import _ "github.com/IBM/sarama"

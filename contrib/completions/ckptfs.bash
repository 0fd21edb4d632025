# SPDX-License-Identifier: Apache-2.0
# bash completion of ckptfs. All knowledge is in `ckptfs complete`; this puts
# together what bash splits at ':', '=' and '@', takes quotes off, and offers what
# may follow in the quotes that were begun. Files are bash's own where nothing
# is offered.

# $1 as the command would get it, into plain; the quote that is open at its end,
# into quote; what of plain lies before the last quotation mark, into before
_ckptfs_plain()
{
	local c i

	plain="" quote="" before=""
	for ((i = 0; i < ${#1}; i++)); do
		c=${1:i:1}
		if [[ $c == "$quote" ]]; then
			quote="" before=$plain
		elif [[ -z $quote && $c == [\"\'] ]]; then
			quote=$c before=$plain
		elif [[ $c == "\\" && $quote != "'" ]]; then
			((i++))
			plain+=${1:i:1}
		else
			plain+=$c
		fi
	done
}

_ckptfs()
{
	local line plain quote before words=() head="" i at=0 piece
	# the words up to the cursor; COMP_WORDBREAKS has cut them at : = @
	for ((i = 1; i <= COMP_CWORD; i++)); do
		piece=${COMP_WORDS[i]}
		line=${COMP_LINE:at}
		_ckptfs_plain "$piece"
		# glued to the one before? then no blank lies between
		if ((i > 1)) && [[ $line != [[:space:]]* ]]; then
			head=${words[${#words[@]} - 1]}
			words[${#words[@]} - 1]+=$plain
		else
			head=""
			words+=("$plain")
			line=${line#*[[:space:]]}
			at=$((${#COMP_LINE} - ${#line}))
			while [[ ${COMP_LINE:at:1} == [[:space:]] ]]; do
				((at++))
			done
		fi
		at=$((at + ${#piece}))
	done
	# bash replaces only what follows an open quote or the last break; an @
	# is a break, and replaced, too
	if [[ -n $quote ]]; then
		head+=$before
	elif [[ -n $piece && -z ${piece//[:=@]/} ]]; then
		head+=$piece
		head=${head%@}
	else
		head=${head%@}
	fi

	COMPREPLY=()
	while IFS= read -r line; do
		line=${line#"$head"}
		case $quote in
		\') line=${line//\'/\'\\\'\'} ;;
		\")
			line=${line//\\/\\\\}
			line=${line//\"/\\\"}
			line=${line//\$/\\\$}
			line=${line//\`/\\\`}
			;;
		*) printf -v line %q "$line" ;;
		esac
		COMPREPLY+=("$line")
	done < <("${COMP_WORDS[0]}" complete "${words[@]}" 2>/dev/null)

	# a folder or an option that wants a value goes on
	if ((${#COMPREPLY[@]} == 1)) && [[ ${COMPREPLY[0]} == *[/=] ]]; then
		compopt -o nospace 2>/dev/null
	fi
}

complete -o default -o bashdefault -F _ckptfs ckptfs
